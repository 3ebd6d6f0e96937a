"""Moves of a source whose upstream has removed splits, most of which the source had read to their ends."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore.facts import RewindPoint
from rw_sql.metastore.records import DISCOVERY, Operation, SourceRecord
from rw_sql.plan.ports.positions import CommittedRanges
from rw_sql.plan.ports.rewinds import RewindLook, TableBack
from rw_sql.plan.statements.common import take_up_new_topics
from tests.plan.canned import CannedWorld, create_source, refused
from tests.plan.canned_inspector import CannedPositions
from tests.plan.statements.move.test_block import planned

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.plan.result.plan import Plan

STALLS = (
    "the upstream no longer lists {}, which the source has not read to the end, so the source stalls until "
    "RESET SOURCE SPLITS f"
)


def write(folder: Path, name: str, size: int, at: int = 1_700_000_000) -> None:
    """A file of ``size`` bytes."""
    (folder / name).write_text("x" * size)
    os.utime(folder / name, (at, at))


@pytest.fixture
def world(tmp_path: Path) -> CannedWorld:
    """A source ``f`` over the files ``a.json``, of 10 bytes, and ``b.json``, of 20 bytes, which it has read."""
    write(tmp_path, "a.json", 10)
    write(tmp_path, "b.json", 20)
    world = CannedWorld()
    world.run(
        f"CREATE SOURCE f (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{tmp_path}') FORMAT PLAIN ENCODE "
        "JSON",
    )
    read(world, "f", "a.json", 10)
    read(world, "f", "b.json", 20)
    return world


def record_of(world: CannedWorld, source: str) -> SourceRecord:
    record = world.snapshot.find("source", source)
    assert isinstance(record, SourceRecord)
    return record


def read(world: CannedWorld, source: str, split: str, end: int) -> None:
    """The source reads a split up to an offset, in a run that starts now."""
    state = world.full_states(source)[split]
    world.commits.append(
        CommittedRanges(
            epoch=world.snapshot.epoch,
            ranges={split: (state.offset, end)},
            lives={split: (state.cluster, state.incarnation)},
        )
    )
    world.moved[split] = end
    world.read.add(split)


def find(world: CannedWorld, source: str) -> None:
    """The source discovers new splits, as its owner does."""
    record = record_of(world, source)
    changes, _ = take_up_new_topics(world.snapshot, world.inspector, record)
    world.commit(
        Operation(kind=DISCOVERY, statement="", objects=(source,), changes=changes, is_unsafe=False, reason=None)
    )


def moved(world: CannedWorld, source: str, inject: str) -> int:
    """Injects offsets, and makes the rewind point of this operation; returns its number."""
    record, kind = record_of(world, source), connector(record_of(world, source).connector)
    states = {split: kind.encode_state(state) for split, state in world.full_states(source).items()}
    world.run(f"PAUSE SOURCE {source}", f"INJECT SOURCE OFFSETS {source} {inject}")
    operation = world.operations[0].epoch
    world.points = (
        RewindPoint(
            source_id=record.id, operation=operation, made_ms=0, folder="rewind-1/1", log_version=7, states=states
        ),
    )
    world.rewind_look = RewindLook(tables=(TableBack(object_id=record.id, now=9, then=4),))
    world.run(f"RESUME SOURCE {source}")
    return operation


def rewound(world: CannedWorld, source: str, operation: int) -> Plan:
    """The plan of a REWIND."""
    return world.plan(f"REWIND SOURCE {source} TO OPERATION {operation}")


def refused_rewind(world: CannedWorld, source: str, operation: int) -> SqlError:
    with pytest.raises(SqlError) as caught:
        rewound(world, source, operation)
    assert caught.value.code == "RW334"
    assert caught.value.hint == (
        f"UNDO OPERATION {operation} restores definition and positions, but does not remove rows"
    )
    return caught.value


REMOVES = "it would remove the rows of records that the source cannot read again: "


def test_rows_of_a_file_found_and_deleted_since_the_operation_are_not_removed(
    world: CannedWorld, tmp_path: Path
) -> None:
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    write(tmp_path, "c.json", 30)
    find(world, "f")
    read(world, "f", "c.json", 30)
    (tmp_path / "c.json").unlink()
    error = refused_rewind(world, "f", operation)
    assert error.message.endswith(f"{REMOVES}c.json at 0 (GONE)")


def test_a_file_found_since_the_operation_is_found_again(world: CannedWorld, tmp_path: Path) -> None:
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    write(tmp_path, "c.json", 30)
    find(world, "f")
    read(world, "f", "c.json", 30)
    plan = rewound(world, "f", operation)
    assert plan.preview is not None
    assert "read again after the next discovery: c.json" in plan.preview.notices
    assert not [notice for notice in plan.preview.notices if notice.startswith("no longer read")]


def test_rows_of_a_file_that_was_replaced_since_they_were_read_are_not_removed(
    world: CannedWorld, tmp_path: Path
) -> None:
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    write(tmp_path, "c.json", 30)
    find(world, "f")
    read(world, "f", "c.json", 30)
    write(tmp_path, "c.json", 40)
    error = refused_rewind(world, "f", operation)
    assert f"{REMOVES}c.json at 0 (RECREATED" in error.message


def test_rows_of_a_known_file_that_was_read_to_its_end_and_deleted_are_not_removed(
    world: CannedWorld, tmp_path: Path
) -> None:
    world.moved["b.json"] = 9
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    read(world, "f", "b.json", 20)
    (tmp_path / "b.json").unlink()
    with pytest.raises(SqlError) as caught:
        rewound(world, "f", operation)
    assert caught.value.code == "RW334"
    assert "the upstream no longer has the records to continue with: b.json at 9 (GONE)" in caught.value.message


def test_a_file_that_had_been_read_to_its_end_before_the_operation_may_be_deleted(
    world: CannedWorld, tmp_path: Path
) -> None:
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    read(world, "f", "a.json", 10)
    (tmp_path / "b.json").unlink()
    for reset in (False, True):
        if reset:
            world.run("RESET SOURCE SPLITS f")
            assert world.assigned("f") == ("a.json",)
        plan = rewound(world, "f", operation)
        assert plan.preview is not None
        assert {(row.split, row.new) for row in plan.preview.splits} == {("a.json", 10), ("b.json", 20)}
        assert not [notice for notice in plan.preview.notices if "stalls" in notice]


@pytest.mark.parametrize("reached", [9, 15])
def test_rows_of_a_file_that_is_lost_already_are_removed_only_if_there_are_none(
    world: CannedWorld, tmp_path: Path, reached: int
) -> None:
    """The source stalls on the file before and after the rewind."""
    world.moved["b.json"] = 9
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    if reached > 9:
        read(world, "f", "b.json", reached)
    (tmp_path / "b.json").unlink()
    if reached == 9:
        assert rewound(world, "f", operation).preview is not None
    else:
        assert f"{REMOVES}b.json at 9 (GONE)" in refused_rewind(world, "f", operation).message


def test_rows_of_files_that_only_a_later_definition_names_are_removed(world: CannedWorld, tmp_path: Path) -> None:
    world.run("ALTER SOURCE f UNSAFE SET (match_pattern = '[ab]*')")
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    write(tmp_path, "c.json", 30)
    world.run("ALTER SOURCE f UNSAFE UNSET (match_pattern)")
    read(world, "f", "c.json", 30)
    plan = rewound(world, "f", operation)
    assert plan.preview is not None
    assert "no longer read: c.json" in plan.preview.notices


def test_rows_of_deleted_files_that_only_a_mistaken_pattern_names_are_removed(
    world: CannedWorld, tmp_path: Path
) -> None:
    world.run("ALTER SOURCE f UNSAFE SET (match_pattern = '*.json')")
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    write(tmp_path, "c.json", 30)
    write(tmp_path, "junk.tmp", 30)
    world.run("ALTER SOURCE f UNSAFE SET (match_pattern = '*')")
    read(world, "f", "junk.tmp", 30)
    read(world, "f", "c.json", 30)
    (tmp_path / "junk.tmp").unlink()
    assert rewound(world, "f", operation).preview is not None
    (tmp_path / "c.json").unlink()
    assert refused_rewind(world, "f", operation).message.endswith(f"{REMOVES}c.json at 0 (GONE)")


def test_rows_of_another_folder_are_removed_although_its_files_are_deleted(world: CannedWorld, tmp_path: Path) -> None:
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    write(other, "c.json", 30)
    world.run(f"ALTER SOURCE f UNSAFE SET (posix_fs.root = '{other}')")
    read(world, "f", "c.json", 30)
    (other / "c.json").unlink()
    assert rewound(world, "f", operation).preview is not None


def grown_topic() -> tuple[CannedWorld, int]:
    """A source whose topic has got another partition since an operation, and the operation's number. All is read."""
    world = CannedWorld()
    world.put_topic("old", (0, 50))
    world.run(create_source("s", "old"))
    read(world, "s", "old:0", 50)
    operation = moved(world, "s", "VALUES ('0' = 15)")
    world.put_topic("old", (0, 50), (0, 40))
    find(world, "s")
    read(world, "s", "old:1", 40)
    return world, operation


@pytest.mark.parametrize("start", [0, 30])
def test_a_partition_found_since_the_operation_must_still_have_all_that_was_read(start: int) -> None:
    world, operation = grown_topic()
    world.put_topic("old", (0, 50), (start, 40))
    if start:
        assert f"{REMOVES}old:1 at 0 (EXPIRED, the upstream has [30, 40))" in (
            refused_rewind(world, "s", operation).message
        )
    else:
        assert rewound(world, "s", operation).preview is not None


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        # A Kinesis shard whose records have all expired.
        ({"is_empty": True, "end": 0}, "EXPIRED"),
        # A RabbitMQ stream whose leader is new reports neither records nor identity.
        ({"is_empty": True, "end": 0, "incarnation": None}, None),
        # A Pulsar partition that was empty when the source found it.
        ({"has_open_start": True, "start": 5}, "MAY BE EXPIRED"),
        ({"has_open_start": True, "start": 40, "end": 60}, "EXPIRED"),
        ({"has_open_start": True, "is_empty": True, "end": 0, "incarnation": None}, "EXPIRED"),
        ({"has_open_start": True}, None),
    ],
)
def test_rows_of_a_split_that_may_have_lost_its_first_records_are_not_removed(
    seen: dict[str, Any], lost: str | None
) -> None:
    world, operation = grown_topic()
    key, (first, second) = next(iter(world.topics.items()))
    world.topics[key] = (first, replace(second, **seen))
    if lost is None:
        assert rewound(world, "s", operation).preview is not None
    else:
        assert f"{REMOVES}old:1 at 0 ({lost}, the upstream has [" in refused_rewind(world, "s", operation).message


def test_a_rewind_reads_only_the_commits_since_its_rewind_point(world: CannedWorld) -> None:
    operation = moved(world, "f", "VALUES ('a.json' = 0) ALLOW DUPLICATES")
    rewound(world, "f", operation)
    assert [asked["down_to"] for asked in world.asked_of(CannedPositions.committed_ranges)] == [8]


def test_a_partition_whose_position_was_discarded_then_must_not_begin_later() -> None:
    """At the operation, the split had no position: it is found again at the end that the topic has now."""
    world = CannedWorld()
    world.put_topic("old", (0, 50), (0, 50))
    world.run(
        create_source("s", "old", "scan.startup.mode = 'latest'"),
        "PAUSE SOURCE s",
        "RESET SOURCE SPLITS s FOR SPLITS ('1') WITH (REDISCOVER = false, FORGET_OFFSETS = true)",
    )
    operation = moved(world, "s", "VALUES ('0' = 15)")
    assert world.states("s") == {"old:0": 15, "old:1": 50}
    world.put_topic("old", (0, 50), (0, 80))
    assert rewound(world, "s", operation).preview is not None
    read(world, "s", "old:1", 80)
    assert f"{REMOVES}old:1 at 50 (BEGINS AT 80" in refused_rewind(world, "s", operation).message


def test_rows_of_records_that_a_log_has_lost_at_its_end_are_removed() -> None:
    """After an unclean leader election, the log has other records at these offsets, or does not reach them yet."""
    world = CannedWorld()
    world.put_topic("old", (0, 60))
    key, (split,) = next(iter(world.topics.items()))
    world.topics[key] = (replace(split, term=1),)
    world.run(create_source("s", "old"))
    read(world, "s", "old:0", 40)
    operation = moved(world, "s", "VALUES ('0' = 15)")
    read(world, "s", "old:0", 50)
    world.cuts = {"old:0": 45}
    for end in (45, 60):
        world.topics[key] = (replace(split, end=end, term=2),)
        assert rewound(world, "s", operation).preview is not None


def test_an_undo_to_records_of_a_deleted_file_is_refused(world: CannedWorld, tmp_path: Path) -> None:
    write(tmp_path, "c.json", 30)
    find(world, "f")
    world.run("PAUSE SOURCE f", "INJECT SOURCE OFFSETS f TO LATEST ALLOW GAPS")
    operation = world.operations[0].epoch
    world.run("RESUME SOURCE f")
    (tmp_path / "c.json").unlink()
    error = refused(world, f"UNDO OPERATION {operation}")
    assert error.code == "RW330"
    assert "no longer has the records to continue with: c.json at 0 (GONE)" in error.message


def test_an_undo_leaves_out_the_deleted_files_that_it_does_not_move(world: CannedWorld, tmp_path: Path) -> None:
    world.run("PAUSE SOURCE f", "INJECT SOURCE OFFSETS f VALUES ('a.json' = 0) ALLOW DUPLICATES")
    operation = world.operations[0].epoch
    (tmp_path / "b.json").unlink()
    plan = world.run(f"UNDO OPERATION {operation}")
    assert plan.preview is not None
    assert not [notice for notice in plan.preview.notices if "stalls" in notice]
    assert world.states("f") == {"a.json": 10, "b.json": 20}


DISCARDS = "RESET SOURCE SPLITS f discards the splits that the upstream no longer has"


def injected(world: CannedWorld, target: str) -> list[tuple[str, str]]:
    return world.answers(f"INJECT SOURCE OFFSETS f {target}")


KEPT = "the upstream no longer lists {}, which the source has read to the end and where it keeps its position"


@pytest.mark.parametrize(
    ("target", "at"),
    [
        ("TO EARLIEST", 0),
        ("TO LATEST", 10),
        ("TO OFFSET 5", 5),
        ("TO SHIFT -2", 8),
        ("BACK BY INTERVAL '2 hours'", 10),
        ("TO TIMESTAMP '2023-01-01 00:00:00Z'", 0),
        ("FROM FILE 'map.json'", 3),
    ],
)
def test_a_deleted_file_that_was_read_keeps_its_position(
    world: CannedWorld, tmp_path: Path, target: str, at: int
) -> None:
    world.files["map.json"] = '{"a.json": 3, "b.json": 4}'
    world.times = {"a.json": 10 if "BACK" in target else 0}
    (tmp_path / "b.json").unlink()
    world.run("PAUSE SOURCE f")
    plan = world.plan(f"INJECT SOURCE OFFSETS f {target}")
    assert plan.preview is not None
    assert KEPT.format("b.json") in plan.preview.notices
    assert not [notice for notice in plan.preview.notices if "stalls" in notice]
    assert {row.split: row.verdict for row in plan.preview.splits}["b.json"] == "NONE"
    assert ("KEPT", KEPT.format("b.json")) in injected(world, target)
    assert world.states("f") == {"a.json": at, "b.json": 20}


@pytest.mark.parametrize(
    "target",
    [
        "VALUES ('b.json' = 0)",
        "VALUES ('a.json' = 0, 'b.json' = NULL)",
        "TO EARLIEST FOR SPLITS ('b.json')",
        "TO OFFSET 0 FOR SPLITS ('a.json', 'b.json')",
        "FROM FILE 'map.json' FOR SPLITS ('b.json')",
    ],
)
def test_a_deleted_file_that_was_read_cannot_be_named(world: CannedWorld, tmp_path: Path, target: str) -> None:
    world.files["map.json"] = '{"b.json": 0}'
    (tmp_path / "b.json").unlink()
    world.run("PAUSE SOURCE f")
    error = refused(world, f"INJECT SOURCE OFFSETS f {target} ALLOW DUPLICATES")
    assert (error.code, error.message) == (
        "RW310",
        "the upstream no longer lists b.json, which the source has read to the end: nothing there can be read again",
    )
    assert error.hint == f"leave out b.json; {DISCARDS}"


def test_naming_the_position_that_a_deleted_file_has_changes_nothing(world: CannedWorld, tmp_path: Path) -> None:
    (tmp_path / "b.json").unlink()
    world.run("PAUSE SOURCE f")
    assert ("UNCHANGED", "b.json at 20 (was 20)") in injected(world, "VALUES ('b.json' = 20)")


def test_where_every_file_is_deleted_there_is_nothing_to_inject(world: CannedWorld, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).unlink()
    world.run("PAUSE SOURCE f")
    for target in ("TO OFFSET 0", "FROM FILE 'map.json'"):
        world.files["map.json"] = '{"a.json": 3, "b.json": 4}'
        error = refused(world, f"INJECT SOURCE OFFSETS f {target} WITH (VALIDATE = false)")
        assert error.code == "RW310"
        assert "no longer lists a.json, b.json, which the source has read to the end" in error.message
        assert error.hint == DISCARDS


def test_a_deleted_file_that_was_not_read_to_its_end_is_reported(world: CannedWorld, tmp_path: Path) -> None:
    world.moved["b.json"] = 9
    (tmp_path / "b.json").unlink()
    world.run("PAUSE SOURCE f")
    error = refused(world, "INJECT SOURCE OFFSETS f TO EARLIEST")
    assert error.code == "RW310"
    assert error.message == "the upstream does not list b.json, so no bounds are known"
    assert error.hint == f"{DISCARDS}; then repeat this statement"
    assert ("NOTICE", STALLS.format("b.json")) in injected(world, "TO OFFSET 5")
    # A position at the end makes the source leave the file.
    assert STALLS.format("b.json") not in str(injected(world, "VALUES ('b.json' = 20) ALLOW GAPS"))


def test_a_block_that_skips_the_rest_of_a_deleted_file_predicts_no_stall(world: CannedWorld, tmp_path: Path) -> None:
    write(tmp_path, "c.json", 30)
    find(world, "f")
    read(world, "f", "c.json", 12)
    world.run("PAUSE SOURCE f")
    (tmp_path / "c.json").unlink()
    skipped = planned(world, "INJECT SOURCE OFFSETS f VALUES ('c.json' = 30) ALLOW GAPS")
    assert skipped.preview is not None
    assert not [notice for notice in skipped.preview.notices if "stalls" in notice]
