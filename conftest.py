"""What every test can use."""

import pytest

pytest_plugins = ["tests.broker", "tests.secured", "tests.postgres"]

# Asserts outside of test modules tell what differs, too.
pytest.register_assert_rewrite("tests.integration", "tests.plan")
