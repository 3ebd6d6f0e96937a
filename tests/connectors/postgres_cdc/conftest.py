"""Fixtures that several tests of captured tables share."""

from __future__ import annotations

import uuid

import pytest

from rw_sql.connectors.postgres_cdc import reader


@pytest.fixture
def often_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes readers check their tables ten times a second."""
    monkeypatch.setattr(reader, "_CHECK_SECONDS", 0.1)


@pytest.fixture
def name() -> str:
    """The name of a table that does not exist yet."""
    return f"public.t_{uuid.uuid4().hex[:8]}"
