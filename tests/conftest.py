"""What all tests share: recorded results, errors as they keep them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.java import java_options
from tests.spark_settings import java_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.errors import SqlError

FIXTURES = Path(__file__).parent / "fixtures"

# Every Spark of the tests takes these over, also those that children of children start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{java_options()} {java_properties()}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--record`` rewrites the recorded results of the fixtures; read their diff like code."""
    parser.addoption("--record", action="store_true", default=False, help="rewrite recorded results")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several workers share the tests, those of one file stay together, since they share its fixtures; the
    chains of kills, which take longest and share nothing, start first and apart from each other."""
    for item in items:
        apart = item.get_closest_marker("alone") is not None
        item.add_marker(pytest.mark.xdist_group(item.nodeid if apart else item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: item.get_closest_marker("alone") is None)


def rendered(error: SqlError) -> str:
    """An error as fixtures keep it."""
    return f"{error.render()}\nSQLSTATE: {error.sqlstate}\n"


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with the one recorded at a path, or records it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--record"):
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"nothing is recorded at {path}: run pytest --record"
        assert text == path.read_text(encoding="utf-8")

    return check
