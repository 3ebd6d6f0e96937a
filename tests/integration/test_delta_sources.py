"""A Delta table as a source: its appended rows, from a version on, and the effect of commits that change rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.delta import reader as delta_reader
from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_versions_of_a_table(session: AttachedSession, tmp_path: Path) -> None:
    session.allow_unsafe()
    path = tmp_path / "orders"

    def insert(*values: str) -> None:
        session.run(f"INSERT INTO delta.`{path}` VALUES {', '.join(values)}")

    session.run(f"CREATE TABLE delta.`{path}` (id INT, day STRING, more DOUBLE) USING delta PARTITIONED BY (day)")
    insert("(1, 'a', 0.5)", "(2, 'b', 1.5)")
    session.run(f"DELETE FROM delta.`{path}` WHERE id = 2")
    session.run(
        "CREATE SOURCE o (id BIGINT, day VARCHAR) INCLUDE offset AS at "
        f"WITH (connector = 'delta', delta.path = '{path}')",
        "CREATE MATERIALIZED VIEW v AS SELECT id, day, at FROM o",
    )
    # The existing rows of the table come first, then the appended ones.
    assert session.flushed_rows_of("v") == [(1, "a", "0")]
    insert("(3, 'a', 0)", "(4, 'c', 0)")
    insert("(5, NULL, 0)")
    wait_until(lambda: len(session.rows_of("v")) == 4, "what was appended is read")
    wanted = [(1, "a", "0"), (3, "a", "3"), (4, "c", "3"), (5, None, "4")]
    assert session.rows_of("v") == wanted
    assert session.positions("o") == {"orders": 5}

    # To a version.
    session.run("PAUSE SOURCE o", "INJECT SOURCE OFFSETS o VALUES ('orders' = 4) ALLOW DUPLICATES", "RESUME SOURCE o")
    wanted += [(5, None, "4")]
    assert session.flushed_rows_of("v") == wanted

    # A commit that changes rows stalls the source; the reason shows how to continue after that commit.
    session.run(f"UPDATE delta.`{path}` SET more = 9 WHERE id = 3")
    insert("(6, 'a', 0)")
    wait_until(lambda: session.job("o").state == "STALLED", "the update is noticed")
    wait_until(lambda: "version 5 of orders changes existing rows" in session.job("o").reason, "the reason is shown")
    session.run("ALTER SOURCE o CONNECTOR WITH (delta.skip_change_commits = 'true')")
    wanted += [(6, "a", "6")]
    wait_until(lambda: session.rows_of("v") == sorted(wanted, key=str), "the source continues")
    assert session.rows_of("o", "id") == [(1,), (3,), (4,), (5,), (6,)]


def test_a_batch_has_the_rows_that_the_commits_of_its_table_count(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders"

    def insert(*values: str) -> None:
        session.run(f"INSERT INTO delta.`{path}` VALUES {', '.join(values)}")

    session.run(
        f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    insert("(1)")
    session.run(
        f"CREATE SOURCE o (id INT) WITH (connector = 'delta', delta.path = 'file://{path}')",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM o",
    )
    assert session.flushed_rows_of("v") == [(1,)]

    # A value that does not fit is a row too, an error.
    insert("(2)", f"({2**40})")
    insert("(3)")
    wait_until(lambda: session.rows_of("v") == [(1,), (2,), (3,)], "what was appended is read")
    assert len(session.rows_of("`o$errors`")) == 1
    assert session.positions("o") == {"orders": 4}

    with monkeypatch.context() as patched:
        patched.setattr(delta_reader, "comparable_path", str.upper)
        insert("(4)")
        wait_until(lambda: "MISCOUNT" in session.job("o").reason, "the missing row is noticed")
        said = "0 rows are to be written, but the log of its input has at least 1; no row of the batch is committed"
        assert said in session.job("o").reason
        assert session.positions("o") == {"orders": 4}
    wait_until(lambda: (4,) in session.rows_of("v"), "the row is read")
