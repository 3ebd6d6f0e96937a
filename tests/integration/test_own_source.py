"""A source of the connector in ``examples/own_connector``: existing rows, added rows, and repeated rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.integration.attached import wait_until
from tests.support.own_package import installed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark]


def add(path: Path, *pages: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS clicks (page TEXT)")
        database.executemany("INSERT INTO clicks VALUES (?)", [(page,) for page in pages])
        database.commit()


@pytest.mark.long
def test_a_connector_of_one_s_own(session: AttachedSession, tmp_path: Path) -> None:
    session.allow_unsafe()
    path = tmp_path / "app.db"
    add(path, "home", "help")
    with installed(tmp_path / "site"):
        session.run(
            "CREATE SOURCE clicks (page VARCHAR) INCLUDE offset AS rowid WITH (connector = 'sqlite', "
            f"sqlite.file = '{path}', sqlite.tables = 'clicks') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW v AS SELECT rowid, page FROM clicks",
        )
        assert session.flushed_rows_of("v") == [("1", "home"), ("2", "help")]
        add(path, "home")
        wait_until(lambda: len(session.rows_of("v")) == 3, "what was added is read")
        session.run(
            "PAUSE SOURCE clicks",
            "INJECT SOURCE OFFSETS clicks VALUES ('clicks' = 2) ALLOW DUPLICATES",
            "RESUME SOURCE clicks",
        )
        wanted = [("1", "home"), ("2", "help"), ("2", "help"), ("3", "home"), ("3", "home")]
        assert session.flushed_rows_of("v") == wanted
        assert session.rows_of("clicks", "page") == [("help",), ("home",), ("home",)]
        session.run("DROP SOURCE clicks CASCADE")
