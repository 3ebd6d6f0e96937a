"""What the benchmark of change data capture measures with: which cases run, what processes spend, what is compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer
from deltalake import write_deltalake

from bench.__main__ import _chosen
from bench.captured import SCHEMA, TABLES, Orders, require_equal, rows_of_events
from bench.harness import Case, find_cases
from bench.streaming import Watched, cpu_seconds, family, resident_bytes
from tests.support.postgres import PostgresInfo

pytest_plugins = ["tests.support.postgres"]

ROOT = Path(__file__).parents[2]


def cases() -> list[Case]:
    return list(find_cases(ROOT / "bench" / "cases"))


def names(*wanted: str, is_quick: bool = False, is_listing: bool = False) -> set[str]:
    chosen = _chosen(cases(), frozenset(wanted), is_quick=is_quick, is_listing=is_listing)
    return {case.name for case in chosen}


def test_a_whole_run_omits_manual_cases_and_a_list_has_them() -> None:
    manual = {case.name for case in cases() if case.is_manual}
    assert "capture_snapshot_engine" in manual
    assert names() == {case.name for case in cases()} - manual
    assert names(is_listing=True) == {case.name for case in cases()}


def test_cases_are_chosen_by_name_or_pattern() -> None:
    assert names("capture_visible_p50") == {"capture_visible_p50"}
    assert names("capture_20_*", "parse_create_source") == {
        "capture_20_tables_connections",
        "capture_20_tables_sent",
        "capture_20_tables_stored",
        "parse_create_source",
    }
    with pytest.raises(typer.BadParameter, match="no such case: caputre_"):
        names("caputre_*", "capture_*")


def test_what_a_process_spends_counts_its_children() -> None:
    program = "import sys; made = bytearray(64 << 20); sum(range(3_000_000)); print(len(made), flush=True); input()"
    # A process of its own, because the children of earlier tests may end while this test measures.
    # It computes, because the system counts whole ticks of 10 ms, and a process may start in less.
    parent = "import subprocess, sys; sum(range(3_000_000)); subprocess.run([sys.executable, '-c', sys.argv[1]])"
    command = [sys.executable, "-c", parent, program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        (child,) = family(process.pid).keys() - {process.pid}
        alone = cpu_seconds(child)
        assert alone > 0
        assert resident_bytes(child) > 64 << 20
        assert cpu_seconds(process.pid) > alone
        assert resident_bytes(process.pid) > resident_bytes(child)
        os.kill(child, signal.SIGKILL)


def test_the_greatest_value_of_a_table_follows_its_commits(tmp_path: Path) -> None:
    table = Watched(str(tmp_path / "t"))
    assert table.greatest("id") == 0
    for last in (5, 9):
        write_deltalake(table.path, pa.table({"id": [1, last]}), mode="append")
        assert table.greatest("id") == last


def test_rows_that_differ_are_reported() -> None:
    row = {"id": 1, "customer": "a", "amount": "1.50", "quantity": 2, "ordered_at": 3, "note": "n"}
    same = pa.Table.from_pylist([row], schema=SCHEMA)
    require_equal("side", same, same)
    for other in ([{**row, "amount": "1.5"}], [row, {**row, "id": 2}], []):
        with pytest.raises(RuntimeError, match=f"side has 1 rows and PostgreSQL {len(other)}"):
            require_equal("side", same, pa.Table.from_pylist(other, schema=SCHEMA))


@pytest.mark.postgres
def test_the_changes_of_the_database_replayed_from_events_give_its_rows(postgres: PostgresInfo, tmp_path: Path) -> None:
    orders = Orders(postgres, rows=2_000, changes=2_000)
    orders.create()
    before = orders.compared()
    orders.change()
    after = orders.compared()
    try:
        assert before.num_rows == 2_000
        assert after.num_rows == 2_000
        assert pc.max(after["id"]).as_py() == orders.last_id == 2_400
        assert set(TABLES) <= {name for (name,) in postgres.run("SELECT relname FROM pg_stat_user_tables")}
    finally:
        postgres.run("DROP TABLE orders, fresh")
    events = [_event(None, row) for row in before.to_pylist()]
    kept = set(after["id"].to_pylist())
    events += [_event(row, None) for row in before.to_pylist() if row["id"] not in kept]
    known = {row["id"]: row for row in before.to_pylist()}
    events += [_event(None, row) for row in after.to_pylist() if known.get(row["id"]) != row]
    assert len(events) == 2_000 + 2_000
    file = tmp_path / "events.json"
    file.write_text("\n".join(events))
    require_equal("the events", rows_of_events(file), after)
    file.write_text("\n".join(events[:-1]))
    with pytest.raises(RuntimeError, match="the events has"):
        require_equal("the events", rows_of_events(file), after)


def _event(before: dict[str, object] | None, after: dict[str, object] | None) -> str:
    """An event as Debezium writes it."""
    from datetime import UTC, datetime, timedelta

    if after is not None:
        micros = after["ordered_at"]
        assert isinstance(micros, int)
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        after = {**after, "ordered_at": at.isoformat().replace("+00:00", "Z")}
    return json.dumps({"before": before, "after": after})


@pytest.mark.postgres
def test_each_commit_that_is_awaited_has_an_age(postgres: PostgresInfo) -> None:
    orders = Orders(postgres, rows=1_000, changes=1_000)
    orders.create()
    try:
        for rows in (20, 40):
            ages = orders.ages(0.1, lambda: int(postgres.run("SELECT count(*) FROM fresh")[0][0]))
            assert len(ages) == 2
            assert min(ages) > 0
            assert postgres.run("SELECT count(*), max(id), max(bucket) FROM fresh") == [(rows, rows, 7)]
    finally:
        postgres.run("DROP TABLE orders, fresh")


def test_too_few_rows_for_the_changes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 0\.8 rows per change"):
        Orders(PostgresInfo(port=1), rows=700, changes=1_000).create()
