"""Planning SHOW CHECKPOINT and INJECT CHECKPOINT OFFSETS: questions, predictions and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.checkpoints.checkpoint import read_checkpoint
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.connectors.base import GroupOffsets
from rw_sql.errors import SqlError
from rw_sql.plan.result.confirmation import question_of
from rw_sql.plan.result.external_actions import UndoCheckpoint
from rw_sql.runtime.control.checkpoint_folders import carry_out
from tests.checkpoints.made import (
    QUERY,
    delta,
    files,
    kafka,
    list_files,
    make_checkpoint,
    make_table,
    plan_batch,
    tree,
)
from tests.conftest import FIXTURES
from tests.plan.canned import HERE, CannedWorld, create_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.plan.result.external_actions import Effect

BROKERS = f"WITH (properties.bootstrap.server = '{HERE}')"


def world_of(path: Path) -> tuple[CannedWorld, str]:
    """A job on two topics: ``a`` read to 40 and 50 of [10, 50) and [0, 60), ``b`` to 7 of [0, 9)."""
    world = CannedWorld()
    world.put_topic("a", (10, 50), (0, 60))
    world.put_topic("b", (0, 9))
    made = make_checkpoint(path / "c", [kafka(a=[20, 20]), kafka(b=[3])], [kafka(a=[40, 50]), kafka(b=[7])])
    return world, str(made)


def inject(path: str, rest: str) -> str:
    return f"INJECT CHECKPOINT OFFSETS '{path}' {rest}"


def positions_after(world: CannedWorld, text: str) -> dict[str, int | None]:
    """The positions that a statement's preview predicts, after checking that its rewrite sets the same."""
    plan = world.plan(text)
    assert plan.preview is not None
    return {row.split: row.new for row in plan.preview.splits}


def verdicts(world: CannedWorld, text: str) -> dict[str, str]:
    preview = world.plan(text).preview
    assert preview is not None
    return {row.split: row.verdict for row in preview.splits}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("VALUES ('a:0' = 12)", {"a:0": 12, "a:1": 50, "b:0": 7}),
        ("VALUES ('a:0' = 12, '1/b:0' = 0)", {"a:0": 12, "a:1": 50, "b:0": 0}),
        ("VALUES ('a:0' = NULL) " + BROKERS, {"a:0": 10, "a:1": 50, "b:0": 7}),
        ("VALUES ('a:0' = '{\"offset\": 11}')", {"a:0": 11, "a:1": 50, "b:0": 7}),
        ("VALUES ('a:0' = 12) WITH (CONVENTION = 'last_seen')", {"a:0": 13, "a:1": 50, "b:0": 7}),
        ("TO EARLIEST " + BROKERS, {"a:0": 10, "a:1": 0, "b:0": 0}),
        ("TO LATEST FOR SPLITS ('a:1') " + BROKERS, {"a:0": 40, "a:1": 60, "b:0": 7}),
        ("TO OFFSET 5 FOR SPLITS ('a:1', 'b:0')", {"a:0": 40, "a:1": 5, "b:0": 5}),
        ("TO SHIFT -5", {"a:0": 35, "a:1": 45, "b:0": 2}),
        ("TO SHIFT -100 ALLOW CLAMP " + BROKERS, {"a:0": 10, "a:1": 0, "b:0": 0}),
        ("TO TIMESTAMP '2026-01-31 08:00:00Z' " + BROKERS, {"a:0": 11, "a:1": 12, "b:0": 9}),
        ("BACK BY INTERVAL '2 hours' FOR SPLITS ('b:0') " + BROKERS, {"a:0": 40, "a:1": 50, "b:0": 9}),
        ("FROM GROUP 'g' " + BROKERS, {"a:0": 33, "a:1": 50, "b:0": 7}),
        ("FROM SOURCE s", {"a:0": 15, "a:1": 16, "b:0": 7}),
        ("FROM FILE '/offsets.json'", {"a:0": 17, "a:1": 50, "b:0": 1}),
        ("FROM FILE '/spark.json' " + BROKERS, {"a:0": 10, "a:1": 60, "b:0": 7}),
        ("FROM FILE '/group.csv'", {"a:0": 40, "a:1": 21, "b:0": 7}),
    ],
)
def test_targets(tmp_path: Path, target: str, expected: dict[str, int]) -> None:
    world, path = world_of(tmp_path)
    world.times = {"a:0": 11, "a:1": 12, "b:0": 9}
    world.groups = {"g": GroupOffsets(offsets={"a:0": 33})}
    world.files = {
        "/offsets.json": '{"a:0": 17, "b:0": 1}',
        "/spark.json": '{"a": {"0": -2, "1": -1}}',
        "/group.csv": "a,1,21\n",
    }
    if "SOURCE s" in target:
        world.run(create_source("s", "a"), "PAUSE SOURCE s")
        world.run("INJECT SOURCE OFFSETS s VALUES ('a:0' = 15, 'a:1' = 16)")
    assert positions_after(world, inject(path, target)) == expected


def test_offsets_of_a_topic_that_is_being_written_are_at_most_its_end(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    world.times = {"a:0": 53, "a:1": 12, "b:0": 9}
    world.groups = {"g": GroupOffsets(offsets={"a:0": 53}, members=1)}
    at_time = inject(path, "TO TIMESTAMP '2026-01-31 08:00:00Z' " + BROKERS)
    assert positions_after(world, at_time) == {"a:0": 50, "a:1": 12, "b:0": 9}
    of_group = inject(path, "FROM GROUP 'g' " + BROKERS)
    world.grown = {"a:0": 53}
    assert positions_after(world, of_group) == {"a:0": 50, "a:1": 50, "b:0": 7}
    assert "these splits are set to the ends that it had then: " in " ".join(world.explained(of_group).split())


def test_where_another_checkpoint_stands(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    other = make_checkpoint(tmp_path / "other", [kafka(a=[11, 12])], [kafka(a=[31, 32])])
    text = inject(path, f"FROM CHECKPOINT '{other}' FOR SPLITS ('a:1', 'b:0')")
    assert positions_after(world, text) == {"a:0": 40, "a:1": 32, "b:0": 7}
    assert f"note: taken from batch 1 of {other}" in world.explained(text)
    strange = make_checkpoint(tmp_path / "strange", [kafka(z=[1])])
    with pytest.raises(SqlError, match="has no position for any split") as caught:
        world.plan(inject(path, f"FROM CHECKPOINT '{strange}'"))
    assert caught.value.hint == "name splits of that checkpoint: z:0"


def test_what_allow_clamp_makes_of_a_position_is_reported(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    shown = world.explained(inject(path, "VALUES ('a:0' = 5, 'a:1' = 7) ALLOW CLAMP " + BROKERS))
    assert "note: clamped to the offsets that the upstream has: a:0 from 5 to 10\n" in shown


def test_the_entry_that_is_written_names_every_split(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    effect = world.plan(inject(path, "VALUES ('a:0' = 12, 'a:2' = 4)")).effect
    assert effect is not None
    carry_out(_at_once(effect), actor="operator")
    lines = (tmp_path / "c" / "offsets" / "1").read_text().splitlines()[2:]
    assert lines == ['{"a":{"1":50,"0":12,"2":4}}', kafka(b=[7])]


def test_exactly_forgets_the_other_topic(tmp_path: Path) -> None:
    world = CannedWorld()
    world.put_topic("new", (0, 5), (3, 9))
    path = str(make_checkpoint(tmp_path / "c", [kafka(old=[20, 20])]))
    text = inject(path, f"VALUES ('new:0' = 0, 'new:1' = 3) {BROKERS[:-1]}, EXACTLY = true)")
    plan = world.plan(text)
    assert plan.preview is not None
    assert verdicts(world, text) == {
        "old:0": "UNKNOWN (no longer in the checkpoint)",
        "old:1": "UNKNOWN (no longer in the checkpoint)",
        "new:0": "UNKNOWN (other topic)",
        "new:1": "UNKNOWN (other topic)",
    }
    assert "start the job with option subscribe = 'new' for source 0" in plan.preview.notices
    assert plan.effect is not None
    carry_out(_at_once(plan.effect), actor="operator")
    assert (tmp_path / "c" / "offsets" / "0").read_text().splitlines()[2] == '{"new":{"0":0,"1":3}}'


def test_what_is_left_unread_in_the_old_topic(tmp_path: Path) -> None:
    world = CannedWorld()
    world.put_topic("new", (0, 5))
    world.put_topic("old", (0, 25), (0, 20))
    path = str(make_checkpoint(tmp_path / "c", [kafka(old=[20, 20])]))
    text = inject(path, f"VALUES ('new:0' = 0) {BROKERS[:-1]}, EXACTLY = true)")
    found = verdicts(world, text)
    assert (found["old:0"], found["old:1"]) == ("GAP 5 (left unread)", "NONE")
    assert world.plan(text).unallowed == ("GAPS",)


def test_explain_names_the_files(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    told = world.explained(inject(path, "VALUES ('a:0' = 12)"))
    assert told.startswith(f"INJECT CHECKPOINT OFFSETS into {path} (query {QUERY}, batch 1)")
    assert "unsafe: needs enable_unsafe_ops and a confirmation" in told
    assert told.endswith(f"RewriteCheckpoint {path}: offsets/0, offsets/1")


def test_a_split_that_two_sources_read(tmp_path: Path) -> None:
    world = CannedWorld()
    path = str(make_checkpoint(tmp_path / "c", [kafka(a=[20]), kafka(a=[30])]))
    assert positions_after(world, inject(path, "VALUES ('1/a:0' = 4)")) == {"0/a:0": 20, "1/a:0": 4}
    with pytest.raises(SqlError, match="read by several sources") as caught:
        world.plan(inject(path, "VALUES ('a:0' = 4)"))
    assert "'0/a:0' or '1/a:0'" in str(caught.value)


def test_a_bare_partition_of_the_only_topic(tmp_path: Path) -> None:
    path = str(make_checkpoint(tmp_path / "c", [kafka(a=[20, 30])]))
    assert positions_after(CannedWorld(), inject(path, "VALUES ('1' = 4)")) == {"a:0": 20, "a:1": 4}


def test_named_sources(tmp_path: Path) -> None:
    path = str(make_checkpoint(tmp_path / "c", [kafka(a=[20]), delta(3)], names=["clicks", "users"]))
    world = CannedWorld()
    assert positions_after(world, inject(path, "VALUES ('clicks/a:0' = 4)")) == {"a:0": 4, "version": 3}
    assert positions_after(world, inject(path, "VALUES ('users/version' = 1)")) == {"a:0": 20, "version": 1}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("VALUES ('a:0' = 30) " + BROKERS, "DUPLICATES 10"),
        ("VALUES ('a:0' = 45) " + BROKERS, "GAP 5"),
        ("VALUES ('a:0' = 40) " + BROKERS, "NONE"),
        ("VALUES ('a:0' = 30)", "DUPLICATES at most 10 (no properties.bootstrap.server)"),
        ("VALUES ('a:0' = 45)", "GAP at most 5 (no properties.bootstrap.server)"),
    ],
)
def test_verdicts_of_kafka(tmp_path: Path, target: str, expected: str) -> None:
    world, path = world_of(tmp_path)
    assert verdicts(world, inject(path, target))["a:0"] == expected


def test_what_expired_is_neither_lost_nor_repeated_again(tmp_path: Path) -> None:
    """The job's position is 4 and the topic now begins at 10: the records between are gone in any case."""
    world = CannedWorld()
    world.put_topic("a", (10, 50))
    path = str(make_checkpoint(tmp_path / "c", [kafka(a=[4])]))
    assert verdicts(world, inject(path, f"TO EARLIEST {BROKERS}")) == {"a:0": "NONE"}
    assert verdicts(world, inject(path, f"VALUES ('a:0' = 12) {BROKERS}")) == {"a:0": "GAP 2"}


def test_a_compacted_topic_counts_at_most(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    world.sparse = {"a": "compacted"}
    assert verdicts(world, inject(path, f"VALUES ('a:0' = 30) {BROKERS}"))["a:0"] == "DUPLICATES at most 10 (compacted)"


def test_partitions_that_the_job_will_take_up_by_itself(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    world.put_topic("b", (0, 9), (0, 3))
    preview = world.plan(inject(path, f"VALUES ('b:0' = 1) {BROKERS}")).preview
    assert preview is not None
    assert "these splits are not in the checkpoint and will be read from their first record: b:1" in preview.notices


@pytest.mark.parametrize(
    ("target", "position", "expected"),
    [
        ("VALUES ('version' = 2)", 2, "DUPLICATES 7"),
        ("VALUES ('version' = 6)", 6, "GAP 5"),
        ("TO SHIFT -1", 4, "DUPLICATES 4"),
        ("TO EARLIEST", 0, "DUPLICATES 10"),
        ("TO LATEST", 6, "GAP 5"),
        ("TO TIMESTAMP '1970-01-01 00:33:20Z'", 2, "DUPLICATES 7"),
        (f"VALUES ('version' = '{delta(1)}')", 1, "DUPLICATES 9"),
    ],
)
def test_a_delta_source(tmp_path: Path, target: str, position: int, expected: str) -> None:
    table = make_table(tmp_path / "t", 1, 2, 0, 3, 4, 5)
    path = str(make_checkpoint(tmp_path / "c", [delta(4)], [delta(5)]))
    text = inject(path, f"{target} WITH (table = '{table}')")
    assert positions_after(CannedWorld(), text) == {"version": position}
    assert verdicts(CannedWorld(), text) == {"version": expected}


def test_a_delta_source_goes_back_over_versions_that_replaced_rows(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 1, -2, 3)
    path = str(make_checkpoint(tmp_path / "c", [delta(3)]))
    plan = CannedWorld().plan(inject(path, f"VALUES ('version' = 1) WITH (table = '{table}')"))
    assert plan.preview is not None
    assert plan.preview.splits[0].verdict == "DUPLICATES at most 5 (some versions updated or deleted rows)"
    assert any("the job fails there unless it reads with skipChangeCommits" in note for note in plan.preview.notices)


def test_a_delta_source_without_its_table(tmp_path: Path) -> None:
    path = str(make_checkpoint(tmp_path / "c", [delta(5)]))
    assert verdicts(CannedWorld(), inject(path, "VALUES ('version' = 2)")) == {
        "version": "UNKNOWN (reads versions 2 to 4 again)"
    }
    assert verdicts(CannedWorld(), inject(path, "VALUES ('version' = 6)")) == {"version": "UNKNOWN (skips version 5)"}


def file_job(path: Path) -> str:
    """A file source that read four files in three lists."""
    for number in range(4):
        (path / f"{number}.json").write_text("{}")
    made = make_checkpoint(path / "c", [files(0)], [files(1)], [files(2)])
    list_files(made, 0, path / "0.json")
    list_files(made, 1, path / "1.json", path / "2.json")
    list_files(made, 2, path / "3.json")
    return str(made)


@pytest.mark.parametrize(
    ("target", "position", "line", "expected"),
    [
        ("VALUES ('list' = 1)", 1, files(0), "UNKNOWN (reads 3 files again)"),
        ("TO SHIFT -1", 2, files(1), "UNKNOWN (reads 1 file again)"),
        ("TO EARLIEST", 0, "-", "UNKNOWN (reads 4 files again)"),
        (f"VALUES ('list' = '{files(1)}')", 2, files(1), "UNKNOWN (reads 1 file again)"),
    ],
)
def test_a_file_source(tmp_path: Path, target: str, position: int, line: str, expected: str) -> None:
    path = file_job(tmp_path)
    plan = CannedWorld().plan(inject(path, target))
    assert plan.preview is not None
    assert plan.effect is not None
    assert [(row.new, row.verdict) for row in plan.preview.splits] == [(position, expected)]
    carry_out(_at_once(plan.effect), actor="operator")
    assert (tmp_path / "c" / "offsets" / "2").read_text().splitlines()[2] == line
    assert CannedWorld().plan(f"SHOW CHECKPOINT '{path}'").table is not None


def test_files_that_would_be_read_again_must_be_there(tmp_path: Path) -> None:
    path = file_job(tmp_path)
    (tmp_path / "2.json").unlink()
    with pytest.raises(SqlError, match=r"1 of the 3 files that would be read again no longer exist") as caught:
        CannedWorld().plan(inject(path, "VALUES ('list' = 1)"))
    assert caught.value.code == "RW402"
    preview = CannedWorld().plan(inject(path, "VALUES ('list' = 1) ALLOW GAPS")).preview
    assert preview is not None
    assert "1 of 3 files no longer exist and will not be read again" in preview.notices


def test_late_rows_and_counted_twice(tmp_path: Path) -> None:
    made = make_checkpoint(
        tmp_path / "c", [kafka(a=[20])], watermark_ms=1_700_000_000_000, operators=["stateStoreSave", "dedupe"]
    )
    notices = CannedWorld().plan(inject(str(made), "VALUES ('a:0' = 4)")).preview
    assert notices is not None
    assert notices.dependents == ("aggregation", "deduplication")
    assert "state is kept: records that are read again count again in aggregation" in notices.notices
    assert (
        "LATE: records before the watermark 2023-11-14 22:13:20.000+00:00 will be dropped, not counted again"
        in notices.notices
    )
    forward = CannedWorld().plan(inject(str(made), "VALUES ('a:0' = 40)")).preview
    assert forward is not None
    assert not any("LATE" in notice for notice in forward.notices)


def test_show_checkpoint(tmp_path: Path) -> None:
    world = CannedWorld()
    world.put_topic("a", (10, 50), (0, 60))
    path = make_checkpoint(tmp_path / "c", [kafka(a=[4, 50], gone=[1]), "-", '{"seq":1}'])
    table = world.plan(f"SHOW CHECKPOINT '{path}' {BROKERS}").table
    assert table is not None
    names = [name for name, _ in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [(row["split"], row["next"], row["start"], row["end"], row["lag"], row["status"]) for row in rows] == [
        ("a:0", 4, 10, 50, 46, "EXPIRED"),
        ("a:1", 50, 0, 60, 10, "OK"),
        ("gone:0", 1, None, None, None, "ORPHAN"),
        (None, None, None, None, None, "UNKNOWN"),
        (None, None, None, None, None, "UNKNOWN"),
    ]
    assert [row["detail"] for row in rows[3:]] == ["the job has read nothing yet", '{"seq":1}']


def test_an_advance_confirmation_needs_allow_and_that_the_job_is_stopped(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)

    def takes_yes(rest: str) -> bool:
        return question_of(world.snapshot, world.plan(inject(path, rest))).takes_yes_beforehand

    assert not takes_yes(f"VALUES ('a:0' = 12) {BROKERS}")
    assert not takes_yes(f"VALUES ('a:0' = 12) ALLOW DUPLICATES {BROKERS}")
    assert not takes_yes("VALUES ('a:0' = 12) WITH (ASSUME_STOPPED = true)")
    assert not takes_yes("VALUES ('a:0' = 45) ALLOW DUPLICATES WITH (ASSUME_STOPPED = true)")
    assert takes_yes("VALUES ('a:0' = 12) ALLOW DUPLICATES WITH (ASSUME_STOPPED = true)")


def test_nothing_is_rewritten_where_nothing_moves(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    plan = world.plan(inject(path, "TO SHIFT 0"))
    assert plan.effect is None
    assert plan.operation is None
    assert [row.change for row in plan.changes] == ["NOTHING"]


def test_a_confirmation_is_bound_to_what_was_seen(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    text = inject(path, "VALUES ('a:0' = 12)")
    first = question_of(world.snapshot, world.plan(text)).token
    assert question_of(world.snapshot, world.plan(text)).token == first
    plan_batch(tmp_path / "c", 1, [kafka(a=[41, 50]), kafka(b=[7])])
    assert question_of(world.snapshot, world.plan(text)).token != first


def test_undo_operation_puts_it_back(tmp_path: Path) -> None:
    world, path = world_of(tmp_path)
    before = tree(tmp_path / "c")
    numbers = []
    for position in (12, 11):
        plan = world.run(inject(path, f"VALUES ('a:0' = {position})"))
        assert plan.effect is not None
        carry_out(_at_once(plan.effect), actor="operator")
        numbers.append(world.operations[0].epoch)
    first, second = numbers
    with pytest.raises(SqlError, match="was rewritten by another operation since"):
        world.plan(f"UNDO OPERATION {first}")
    for number in (second, first):
        plan = world.run(f"UNDO OPERATION {number} REASON 'not this one'")
        assert plan.is_unsafe
        assert world.operations[0].reason == "not this one"
        assert plan.assertion
        assert plan.effect is not None
        carry_out(_at_once(plan.effect), actor="operator")
    assert [row.detail for row in plan.changes] == ["a:0 at 40 (was 12)"]
    assert tree(tmp_path / "c") == before
    with pytest.raises(SqlError, match="it changed a checkpoint"):
        world.plan(f"UNDO OPERATION {world.operations[0].epoch}")
    with pytest.raises(SqlError, match="has already undone it"):
        world.plan(f"UNDO OPERATION {first}")


def _at_once(effect: Effect) -> Effect:
    return replace(effect, watch_seconds=0)


def _undo_of(path: Path) -> Effect:
    stamp = read_checkpoint(CheckpointFiles.at(str(path))).stamp
    return UndoCheckpoint(path=str(path), number=1, stamp=stamp, watch_seconds=0)


def _folders(path: Path) -> dict[str, Path]:
    return {folder.name: folder for folder in path.iterdir() if folder.is_dir()}


def test_refusals_change_nothing_and_say_the_remedy(
    tmp_path: Path, recorded: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = Path()
    world, path = world_of(here)
    table = make_table(here / "t", 1, 2)
    other = make_table(here / "u", 1, 2, table_id="another")
    uncommitted = make_checkpoint(here / "uncommitted", [kafka(a=[20])], [kafka(a=[30])], uncommitted=1)
    planned = make_checkpoint(here / "planned", [kafka(a=[20])], uncommitted=1)
    reading = make_checkpoint(here / "reading", [delta(1, index=0, is_starting=True)])
    running = make_checkpoint(here / "running", [kafka(a=[20])])
    (running / "metadata").write_text('{"id":"other-query"}')
    world.running = {"other-query": 'query "orders"'}
    strange = make_checkpoint(here / "strange", ['{"seq":1}'])
    own = make_checkpoint(here / "warehouse" / "checkpoints" / "mv-3" / "1", [delta(1)])
    (here / "warehouse" / "rw_catalog").mkdir()
    job = make_checkpoint(here / "job", [delta(2)])
    killed = make_checkpoint(here / "killed", [kafka(a=[20])])
    effect = world.plan(inject(str(killed), "VALUES ('a:0' = 4)")).effect
    assert effect is not None
    carry_out(_at_once(effect), actor="operator")
    journal = killed / "_rw_sql" / "000001.json"
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "state": "started"}))
    (here / "empty").mkdir()
    cases = [
        "SHOW CHECKPOINT 'empty'",
        f"SHOW CHECKPOINT '{planned}'",
        inject(str(uncommitted), "VALUES ('a:0' = 4)"),
        inject(str(running), "VALUES ('a:0' = 4)"),
        inject(str(own), "VALUES ('version' = 0)"),
        inject(str(killed), "VALUES ('a:0' = 4)"),
        inject(str(reading), "VALUES ('version' = 0)"),
        inject(str(strange), "TO EARLIEST"),
        inject(path, "VALUES ('c:0' = 4)"),
        inject(path, "VALUES ('a:0' = 400) " + BROKERS),
        inject(path, "VALUES ('a:7' = 4) " + BROKERS),
        inject(path, "VALUES ('a:0' = 4) WITH (table = '/nowhere')"),
        inject(path, "TO EARLIEST"),
        inject(path, "TO SHIFT -100"),
        inject(path, "VALUES ('a:0' = 4) WITH (properties.sasl.password = 'hunter2')"),
        inject(path, "VALUES ('a:0' = 4) WITH (properties.security.protocol = 'ssl')"),
        inject(path, "VALUES ('a:0' = 4) WITH (watch = 'long')"),
        inject(path, "VALUES ('a:0' = 4) WITH (bootstrap = 'b:9092')"),
        inject(str(job), "TO EARLIEST"),
        inject(str(job), f"VALUES ('version' = 9) WITH (table = '{table}')"),
        inject(str(job), f"VALUES ('version' = 1) WITH (table = '{other}')"),
        inject(str(job), "FROM GROUP 'g'"),
        inject(str(job), "VALUES ('version' = 'soon')"),
        inject(str(job), f"VALUES ('version' = 1) {BROKERS}"),
        inject(str(job), "VALUES ('version' = 1) WITH (EXACTLY = true)"),
    ]
    before = {name: tree(folder) for name, folder in _folders(here).items()}
    told = []
    for text in cases:
        with pytest.raises(SqlError) as caught:
            world.plan(text)
        told.append(f"{text}\n\n{caught.value.render()}\nSQLSTATE: {caught.value.sqlstate}\n")
    with pytest.raises(SqlError) as caught:
        carry_out(_undo_of(job), actor="operator")
    told.append(f"{caught.value.render()}\nSQLSTATE: {caught.value.sqlstate}\n")
    assert {name: tree(folder) for name, folder in _folders(here).items()} == before
    text = "\n\n".join(told).replace(str(tmp_path), "${folder}")
    recorded(FIXTURES / "errors" / "checkpoint.txt", text)
