"""Whether the snapshot of an upstream table continues or another one begins."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from rw_sql.connectors.changes import KEY_ORDER, TableProgress, records_schema
from rw_sql.connectors.mysql_cdc.marks import Mark
from rw_sql.model.definitions import KEPT_TIME
from rw_sql.model.source_readers import CdcTableSpec
from rw_sql.runtime.ingest.table_snapshots import begins_anew, progress_of, unchanged_values
from tests.plan.canned import CannedWorld
from tests.plan.statements.table.test_cdc_tables import cdc_world, ingest, table

A = "CREATE TABLE a (id INT PRIMARY KEY) FROM pg TABLE 'public.orders'"
B = "CREATE TABLE b (id INT PRIMARY KEY, word VARCHAR) FROM pg TABLE 'public.orders'"
RESET = ("PAUSE SOURCE pg", "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)", "RESUME SOURCE pg")


def orders(world: CannedWorld) -> CdcTableSpec:
    return next(each for each in ingest(world).tables if each.upstream == "public.orders")


def ended(world: CannedWorld, *, is_done: bool = True) -> tuple[str, TableProgress]:
    """What a commit stores at the end of the present snapshot."""
    name, progress = progress_of(orders(world), {})
    text = json.loads(progress.to_json())
    text |= {"identity": "7/8", "is_done": is_done, "columns": {"id": "integer", "word": "text"}, "rows_done": 5}
    return name, TableProgress.from_json(json.dumps(text))


def after(world: CannedWorld, known: tuple[str, TableProgress], *texts: str) -> tuple[str, TableProgress]:
    if texts:
        world.run(*texts)
    return progress_of(orders(world), {"public.orders": known})


def test_a_column_that_an_older_table_gets_begins_a_snapshot_for_both() -> None:
    world = cdc_world(A, B)
    known = ended(world)
    name, progress = after(world, known, "ALTER TABLE a ADD COLUMN word VARCHAR")
    assert name == f"{table(world, 'a').id}.0.2,{table(world, 'b').id}.0"
    assert (progress.is_done, progress.identity, progress.continues) == (False, None, "7/8")
    assert (progress.is_repeated, progress.columns) == (True, {"id": "", "word": ""})


def test_a_table_that_is_dropped_leaves_the_others_where_they_are() -> None:
    world = cdc_world(A, B)
    known = ended(world)
    name, progress = after(world, known, "DROP TABLE b")
    assert (name, progress) == (f"{table(world, 'a').id}.0", known[1])
    assert not begins_anew(orders(world), {"public.orders": known})


def test_a_second_table_reads_the_rows_without_markers_and_all_changes_since() -> None:
    world = cdc_world(A)
    known = ended(world)
    name, progress = after(world, known, B)
    assert name == f"{table(world, 'a').id}.0,{table(world, 'b').id}.0"
    assert (progress.continues, progress.is_repeated, progress.is_done) == ("7/8", False, False)
    assert progress.columns == known[1].columns


def test_a_table_that_is_dropped_and_created_again_begins_with_nothing_known() -> None:
    world = cdc_world(A)
    known = ended(world)
    _, progress = after(world, known, "DROP TABLE a", A)
    assert (progress.continues, progress.identity, progress.columns) == (None, None, {})


def test_a_column_that_is_dropped_in_the_table_begins_no_snapshot() -> None:
    world = cdc_world(A)
    world.run("ALTER TABLE a ADD COLUMN word VARCHAR")
    known = ended(world)
    _, progress = after(world, known, "ALTER TABLE a DROP COLUMN word")
    assert progress == known[1]


def test_a_reset_begins_a_snapshot_that_does_not_continue() -> None:
    world = cdc_world(A, B)
    name, progress = after(world, ended(world), *RESET)
    assert (progress.continues, progress.is_repeated) == (None, True)
    assert name == orders(world).snapshot


def test_a_repeated_snapshot_that_another_one_replaces_is_repeated_there() -> None:
    world = cdc_world(A)
    world.run(*RESET)
    known = ended(world, is_done=False)
    assert known[1].is_repeated
    _, progress = after(world, known, B)
    assert (progress.continues, progress.is_repeated) == ("7/8", True)


def test_a_table_without_a_snapshot_begins_none_and_keeps_the_changes() -> None:
    world = cdc_world(A.replace(" FROM pg", " WITH (snapshot = 'false') FROM pg"))
    known = ended(world)
    assert (orders(world).has_snapshot, known[1].is_done) == (False, True)
    _, progress = after(world, known, B)
    assert (progress.is_done, progress.continues, progress.is_repeated) == (False, "7/8", False)
    known = ended(world, is_done=False)
    _, progress = after(world, known, "DROP TABLE b")
    assert (progress.is_done, progress.identity) == (True, "7/8")


def test_a_snapshot_of_version_0_1_0_covers_the_older_tables() -> None:
    world = cdc_world(A, B)
    _, progress = ended(world)
    known = f"{table(world, 'b').id}.0", progress
    assert after(world, known)[1] == progress
    assert after(world, known, "DROP TABLE b")[1] == progress
    assert after(world, known, "ALTER TABLE a ADD COLUMN word VARCHAR")[1].continues == "7/8"


def test_a_snapshot_of_version_0_1_0_covers_columns_that_were_added_together() -> None:
    world = cdc_world(A, B)
    world.run("ALTER TABLE a ADD COLUMN amount NUMERIC", "ALTER TABLE b ADD COLUMN amount NUMERIC")
    _, progress = ended(world)
    assert after(world, (f"{table(world, 'b').id}.0.3", progress))[1] == progress
    # This column was added after the snapshot's only table was created, and version 0.1.0 never filled it.
    assert after(world, (f"{table(world, 'b').id}.0", progress))[1].is_repeated


def test_a_snapshot_of_version_0_1_0_does_not_survive_a_reset() -> None:
    world = cdc_world(A, B)
    known = f"{table(world, 'b').id}.0", ended(world)[1]
    world.run(*RESET)
    assert after(world, known)[1].continues is None
    assert after(world, known, "DROP TABLE b")[1].continues is None


def test_a_table_without_a_snapshot_gets_the_changes_that_another_tables_snapshot_contains() -> None:
    world = cdc_world(A.replace(" FROM pg", " WITH (snapshot = 'false') FROM pg"), B)
    _, progress = progress_of(orders(world), {})
    assert (progress.is_done, progress.has_live_tables) == (False, True)
    assert Mark.of(progress, 0x5000, 0x9000).begin == 0x5000
    world = cdc_world(B)
    known = ended(world, is_done=False)
    assert not known[1].has_live_tables
    _, progress = after(world, known, A.replace(" FROM pg", " WITH (snapshot = 'false') FROM pg"))
    assert (progress.identity, progress.has_live_tables) == ("7/8", True)


def test_a_second_table_keeps_what_is_known_of_the_upstream_table() -> None:
    world = cdc_world(A)
    name, progress = ended(world)
    traits = {"begin": "99", "publication": "p", "column id": "1/2"}
    _, begun = after(world, (name, replace(progress, traits={**traits, KEY_ORDER: "C"})), B)
    assert begun.traits == traits


def test_a_snapshot_that_has_read_nothing_is_bound_to_no_table_that_was_dropped() -> None:
    world = cdc_world(A)
    name, progress = after(world, ended(world), B)
    assert progress.kept_for == f"{table(world, 'a').id}.0"
    begun = name, replace(progress, identity="old", continues=None)
    assert after(world, begun)[1] == begun[1], "the first table still reads"
    world.run("DROP TABLE a")
    assert begins_anew(orders(world), {"public.orders": begun})
    name, fresh = after(world, begun)
    assert name == f"{table(world, 'b').id}.0"
    assert (fresh.identity, fresh.continues, fresh.kept_for, fresh.columns) == (None, None, "", {})
    assert fresh.is_repeated, "rows that arrived as changes may have been deleted"
    _, third = after(world, begun, A.replace("TABLE a", "TABLE c"))
    assert (third.continues, third.is_repeated) == (None, True)
    read = begun[0], replace(begun[1], rows_done=5, next_key='{"id": "5"}')
    world.run("DROP TABLE c")
    assert after(world, read)[1] == read[1]


def test_a_third_table_binds_no_snapshot_to_the_second_table_that_has_no_rows() -> None:
    world = cdc_world(A)
    name, second = after(world, ended(world), B)
    begun = name, replace(second, identity="old", continues=None)
    name, third = after(world, begun, A.replace("TABLE a", "TABLE c"))
    assert (third.continues, third.kept_for) == ("old", second.kept_for)
    _, fresh = after(world, (name, replace(third, identity="old", continues=None)), "DROP TABLE a")
    assert (fresh.identity, fresh.continues) == (None, None)


def test_tables_that_kept_their_rows_keep_the_times_of_rows_that_are_read_again() -> None:
    world = cdc_world(A)
    fresh = {"public.orders": progress_of(orders(world), {})}
    again = {"public.orders": after(world, ended(world), B)}
    made = [
        {"table": "public.orders", "op": "r"},
        {"table": "public.orders", "op": "u", "unchanged": ["word"]},
        {"table": "public.lines", "op": "r"},
    ]
    records = pa.Table.from_pylist(made, records_schema())
    assert unchanged_values(records, fresh).to_pylist() == [None, ["word"], None]
    assert unchanged_values(records, again).to_pylist() == [[KEPT_TIME], ["word"], None]
    assert unchanged_values(records.slice(0, 0), again).to_pylist() == []
    world.run(*RESET)
    begun = {"public.orders": after(world, again["public.orders"])}
    assert unchanged_values(records, begun).to_pylist() == [None, ["word"], None], "changes may have been skipped"
    world = cdc_world(A)
    world.run(*RESET)
    owed = {"public.orders": after(world, ended(world, is_done=False), B)}
    assert owed["public.orders"][1].kept_for
    assert unchanged_values(records, owed).to_pylist() == [None, ["word"], None], "so does the next snapshot"


def test_a_column_that_is_added_while_another_column_is_read_leaves_the_times() -> None:
    world = cdc_world(A)
    known = after(world, ended(world), "ALTER TABLE a ADD COLUMN word VARCHAR")
    begun = known[0], replace(known[1], identity="old", continues=None, rows_done=5, next_key='{"id": "5"}')
    _, again = after(world, begun, "ALTER TABLE a ADD COLUMN amount NUMERIC")
    assert (known[1].keeps_times, again.keeps_times, again.is_repeated) == (True, True, True)


def test_a_snapshot_for_another_reset_is_repeated_whatever_the_number_of_that_reset() -> None:
    world = cdc_world(A, B)
    never_reset = orders(world)
    world.run(*RESET)
    name, progress = ended(world)
    for known in (name, name.rpartition(",")[2]):
        _, made = progress_of(never_reset, {"public.orders": (known, progress)})
        assert (made.continues, made.is_done, made.is_repeated) == (None, False, True)


def test_a_table_that_is_created_again_has_no_rows_that_a_repeated_snapshot_would_remove() -> None:
    world = cdc_world(A)
    known = ended(world)
    assert after(world, known, "DROP TABLE a", A)[1].is_repeated is False
