"""Every target of INJECT SOURCE OFFSETS: its resulting offsets, its messages, and its refusals."""

from __future__ import annotations

import json

import pytest

from rw_sql.connectors.base import GroupOffsets
from rw_sql.connectors.registry import connector
from rw_sql.errors import Span, SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.model.timestamps import interval_milliseconds, timestamp_milliseconds
from rw_sql.plan.ports.checkpoints import CheckpointText
from tests.plan.canned import CannedWorld, create_source, moved_world, refused
from tests.plan.canned_inspector import CannedUpstreams

SPAN = Span(start=0, end=1, line=1, column=1)


def paused_world() -> CannedWorld:
    """``s`` on ``old``: partition 0 has [10, 50) and the position 40, partition 1 has [0, 50) and the position 50."""
    world = moved_world()
    world.run("PAUSE SOURCE s")
    return world


def injected(world: CannedWorld, target: str) -> dict[str, int]:
    world.run(f"INJECT SOURCE OFFSETS s {target}")
    return world.states("s")


def notices(world: CannedWorld, target: str) -> list[str]:
    return [detail for change, detail in world.answers(f"INJECT SOURCE OFFSETS s {target}") if change == "NOTICE"]


CONNECT = json.dumps(
    {
        "offsets": [
            {"partition": {"kafka_topic": "old", "kafka_partition": 0}, "offset": {"kafka_offset": 20}},
            {"partition": {"kafka_topic": "old", "kafka_partition": 1}, "offset": None},
        ]
    }
)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ('{"old:0": 20, "1": null}', {"old:0": 20, "old:1": 0}),
        (CONNECT, {"old:0": 20, "old:1": 0}),
        ("old,0,20\n", {"old:0": 20, "old:1": 50}),
        ("loader,old,0,20\nloader,old,1,30\n", {"old:0": 20, "old:1": 30}),
        ("old 0 20\nold 1 30\n", {"old:0": 20, "old:1": 30}),
        ('{"old":{"0":-2,"1":30}}', {"old:0": 10, "old:1": 30}),
        ('{"old":{"0":-1}}', {"old:0": 50, "old:1": 50}),
    ],
)
def test_every_form_of_file(text: str, states: dict[str, int]) -> None:
    world = paused_world()
    world.files["f"] = text
    assert injected(world, "FROM FILE 'f'") == states


def test_last_seen_adds_one_to_numbers_and_leaves_bounds() -> None:
    world = paused_world()
    world.files["f"] = '{"old":{"0":20,"1":-2}}'
    assert injected(world, "FROM FILE 'f' WITH (CONVENTION = 'last_seen')") == {"old:0": 21, "old:1": 0}


def test_one_bad_entry_refuses_the_whole_file() -> None:
    world = paused_world()
    world.files["f"] = "old,0,20\nother,0,1\n"
    assert refused(world, "INJECT SOURCE OFFSETS s FROM FILE 'f'").code == "RW209"
    world.files["f"] = "old,0,20\nold,1,51\n"
    assert refused(world, "INJECT SOURCE OFFSETS s FROM FILE 'f'").code == "RW211"


def test_a_consumer_groups_offsets() -> None:
    world = paused_world()
    world.groups["loader"] = GroupOffsets(offsets={"old:0": 20, "else:0": 1}, members=2)
    assert notices(world, "FROM GROUP 'loader'") == [
        'consumer group "loader" has 2 active members, so its offsets may still change',
        'consumer group "loader" has committed no offsets for old:1',
    ]
    assert world.states("s") == {"old:0": 20, "old:1": 50}
    error = refused(world, "INJECT SOURCE OFFSETS s FROM GROUP 'loadr'")
    assert (error.code, error.hint) == ("RW402", 'did you mean "loader"?')


def test_a_checkpoints_offsets() -> None:
    world = paused_world()
    world.checkpoints["/c"] = CheckpointText(
        batch=3,
        planned=4,
        text='v1\n{"batchWatermarkMs":0}\n{"old":{"0":20,"1":30},"b":{"0":9}}\n{"reservoirId":"x"}\n-',
    )
    assert notices(world, "FROM CHECKPOINT '/c'") == [
        "taken from batch 3 of the checkpoint",
        "batch 4 of the checkpoint is planned but not committed, so its offsets are not used",
        "the checkpoint's positions in other splits are ignored: b:0",
    ]
    assert world.states("s") == {"old:0": 20, "old:1": 30}
    world.checkpoints["/c"] = CheckpointText(batch=0, planned=0, text='v2\n{}\nsrc:{"old":{"0":25}}')
    assert injected(world, "FROM CHECKPOINT '/c'") == {"old:0": 25, "old:1": 30}


def test_a_partition_that_a_file_does_not_name_is_named_in_a_notice() -> None:
    world = paused_world()
    world.files["f"] = '{"old": {"0": 20}}'
    assert notices(world, "FROM FILE 'f'") == ["the file has no offset for old:1, where the source keeps its position"]
    assert notices(world, "FROM FILE 'f' FOR SPLITS ('0')") == []
    world.files["f"] = '{"old": {"0": 20, "1": 30}}'
    assert notices(world, "FROM FILE 'f'") == []


def test_a_partition_that_came_after_the_query_of_a_checkpoint_stopped_is_named_with_the_remedy() -> None:
    """The query would read it from its first record; a source that began at ``latest`` skips these records."""
    world = paused_world()
    world.checkpoints["/c"] = CheckpointText(batch=3, planned=3, text='v1\n{}\n{"old":{"0":20}}')
    remedy = "INJECT SOURCE OFFSETS s TO EARLIEST FOR SPLITS ('old:1')"
    assert notices(world, "FROM CHECKPOINT '/c'") == [
        "taken from batch 3 of the checkpoint",
        "the checkpoint has no position in old:1, where the source keeps its position. "
        f"The query would read old:1 from the first record: {remedy}",
    ]
    world.run(remedy)
    assert notices(world, "FROM CHECKPOINT '/c' FOR SPLITS ('old:0')") == ["taken from batch 3 of the checkpoint"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('v1\n{}\n{"b":{"0":9}}', 'reads no split of source "s"'),
        ('v1\n{}\n{"old":{"0":9}}\n{"old":{"0":12}}', "several times"),
        ("nonsense", "contains no offsets"),
    ],
)
def test_checkpoints_that_cannot_be_used(text: str, says: str) -> None:
    world = paused_world()
    world.checkpoints["/c"] = CheckpointText(batch=0, planned=0, text=text)
    error = refused(world, "INJECT SOURCE OFFSETS s FROM CHECKPOINT '/c'")
    assert (error.code, says in error.message) == ("RW403", True)
    assert refused(world, "INJECT SOURCE OFFSETS s FROM CHECKPOINT '/none'").code == "RW408"


def test_where_another_source_stands() -> None:
    world = paused_world()
    world.run(create_source("t", "old,new", "paused = 'true'"))
    world.run("INJECT SOURCE OFFSETS t VALUES ('old:0' = 22, 'old:1' = 33)")
    assert injected(world, "FROM SOURCE t") == {"old:0": 22, "old:1": 33}
    assert refused(world, "INJECT SOURCE OFFSETS s FROM SOURCE s").code == "RW212"
    world.run(create_source("u", "new", "paused = 'true'"))
    assert refused(world, "INJECT SOURCE OFFSETS s FROM SOURCE u").code == "RW310"
    world.run("RESUME SOURCE t")
    assert notices(world, "FROM SOURCE t") == ['source "t" is running, so its positions may still change']


def test_a_source_of_another_incarnation_of_the_topic_is_not_continued_by_number() -> None:
    world = paused_world()
    world.run(create_source("t", "old", "paused = 'true'"))
    world.put_topic("old", (0, 9), (0, 9), life="second")
    world.run("RESET SOURCE SPLITS s")
    assert refused(world, "INJECT SOURCE OFFSETS s FROM SOURCE t").code == "RW210"
    assert refused(world, "INJECT SOURCE OFFSETS t TO SHIFT -1").code == "RW210"


def test_offsets_that_are_worked_out() -> None:
    world = paused_world()
    assert injected(world, "TO OFFSET 20") == {"old:0": 20, "old:1": 20}
    assert injected(world, "TO SHIFT 5 FOR SPLITS ('1')") == {"old:0": 20, "old:1": 25}
    assert injected(world, "TO SHIFT -5") == {"old:0": 15, "old:1": 20}
    assert refused(world, "INJECT SOURCE OFFSETS s TO SHIFT -100").code == "RW211"
    assert injected(world, "TO SHIFT -100 ALLOW CLAMP") == {"old:0": 10, "old:1": 0}
    assert injected(world, "TO OFFSET 100 ALLOW CLAMP") == {"old:0": 50, "old:1": 50}


def test_what_allow_clamp_makes_of_an_offset_is_said() -> None:
    world = paused_world()
    assert notices(world, "VALUES ('0' = 5, '1' = 60) ALLOW CLAMP") == [
        "clamped to the offsets that the upstream has: old:0 from 5 to 10, old:1 from 60 to 50"
    ]
    shown = world.explained("INJECT SOURCE OFFSETS s TO SHIFT -100 ALLOW CLAMP")
    assert "note: clamped to the offsets that the upstream has: old:0 from -90 to 10, old:1 from -50 to 0" in shown
    assert notices(world, "TO OFFSET 20 ALLOW CLAMP") == []


def test_for_splits_that_a_file_does_not_name() -> None:
    world = paused_world()
    world.files["f"] = "old,0,20\n"
    error = refused(world, "INJECT SOURCE OFFSETS s FROM FILE 'f' FOR SPLITS ('1')")
    assert (error.code, error.hint) == ("RW210", "offsets are given for old:0")


@pytest.mark.parametrize("statement", ["INJECT SOURCE OFFSETS s TO OFFSET 20", "SKIP RECORD AT '0' 40 ON SOURCE s"])
def test_a_running_source_is_explained_as_after_its_pause(statement: str) -> None:
    world = moved_world()
    world.jobs["ingest-1"] = JobStatus(job="ingest-1", object_id=1, state="RUNNING")
    shown = world.explained(statement).splitlines()
    said = "  note: the source is running, so its positions will change: PAUSE SOURCE s first"
    assert said in shown
    assert f"  as of epoch {world.snapshot.epoch}" in shown
    assert refused(world, statement).code == "RW305"
    world.run("PAUSE SOURCE s")
    del world.jobs["ingest-1"]
    assert world.explained(statement).splitlines() == [
        line.replace("epoch 2", "epoch 3") for line in shown if line != said
    ]


def test_offsets_at_a_time() -> None:
    world = paused_world()
    world.times = {"old:0": 20, "old:1": 50}
    target = "TO TIMESTAMP '2023-11-14 22:13:20+00:00'"
    assert notices(world, target) == [
        "these splits have no record at or after that time and are set to their ends: old:1"
    ]
    assert world.states("s") == {"old:0": 20, "old:1": 50}
    assert [asked["milliseconds"] for asked in world.asked_of(CannedUpstreams.offsets_at)] == [1_700_000_000_000]
    world.asked.clear()
    world.run("INJECT SOURCE OFFSETS s BACK BY INTERVAL '1 hour' FOR SPLITS ('0')")
    (asked,) = world.asked_of(CannedUpstreams.offsets_at)
    assert (asked["milliseconds"], asked["splits"]) == (1_699_996_400_000, ("old:0",))
    assert refused(world, "INJECT SOURCE OFFSETS s TO TIMESTAMP '2023-11-14 22:13:20'").code == "RW107"
    assert refused(world, "INJECT SOURCE OFFSETS s BACK BY INTERVAL '1 month'").code == "RW107"


GROWN = "the upstream has grown since its ends were read; these splits are set to the ends that it had then: old:0"


def test_a_topic_that_is_being_written_has_no_later_record_than_its_end() -> None:
    """The offsets of a time are requested after the ends, so they may be beyond these ends."""
    world = paused_world()
    world.times = {"old:0": 53, "old:1": 20}
    target = "TO TIMESTAMP '2023-11-14 22:13:20+00:00'"
    assert notices(world, target) == [
        "these splits have no record at or after that time and are set to their ends: old:0"
    ]
    assert world.states("s") == {"old:0": 50, "old:1": 20}


def test_a_group_that_still_commits_is_at_most_at_the_end() -> None:
    world = paused_world()
    world.groups["loader"] = GroupOffsets(offsets={"old:0": 53, "old:1": 20}, members=1)
    # Without growth, such as after the topic was created again, an offset after the end is an error.
    assert refused(world, "INJECT SOURCE OFFSETS s FROM GROUP 'loader'").code == "RW211"
    world.grown["old:0"] = 52
    assert refused(world, "INJECT SOURCE OFFSETS s FROM GROUP 'loader'").code == "RW211"
    world.grown["old:0"] = 60
    active = 'consumer group "loader" has 1 active members, so its offsets may still change'
    assert notices(world, "FROM GROUP 'loader'") == [active, GROWN]
    assert world.states("s") == {"old:0": 50, "old:1": 20}
    world.groups["loader"] = GroupOffsets(offsets={"old:0": 53})
    assert refused(world, "INJECT SOURCE OFFSETS s FROM GROUP 'loader'").code == "RW211"


def test_a_source_that_still_reads_is_at_most_at_the_end() -> None:
    world = paused_world()
    world.run(create_source("t", "old"), "CREATE MATERIALIZED VIEW w AS SELECT id FROM t")
    world.read_on("t", old_0=53, old_1=20)
    assert refused(world, "INJECT SOURCE OFFSETS s FROM SOURCE t").code == "RW211"
    world.grown["old:0"] = 60
    assert notices(world, "FROM SOURCE t") == ['source "t" is running, so its positions may still change', GROWN]
    world.moved.clear()
    assert world.states("s") == {"old:0": 50, "old:1": 20}
    world.read_on("t", old_0=53)
    world.run("PAUSE SOURCE t")
    assert refused(world, "INJECT SOURCE OFFSETS s FROM SOURCE t").code == "RW211"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2023-11-14 22:13:20+00:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 23:13:20.5+01:00", 1_700_000_000_500),
        ("2023-11-14 22:13:20 UTC", 1_700_000_000_000),
        ("2023-11-14 23:13:20 Europe/Berlin", 1_700_000_000_000),
        ("1969-12-31 23:59:59.999Z", -1),
    ],
)
def test_timestamps(text: str, milliseconds: int) -> None:
    assert timestamp_milliseconds(text, SPAN) == milliseconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2023-11-14 22:13:20", "has no time zone"),
        ("yesterday", "is not a timestamp"),
        ("2023-11-14 22:13:20 Nowhere/Never", "is not a time zone"),
        ("2023-11-14 22:13:20+01:00 UTC", "has two time zones"),
    ],
)
def test_what_is_no_timestamp(text: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        timestamp_milliseconds(text, SPAN)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1 hour", 3_600_000),
        ("90 min", 5_400_000),
        ("1 day 2 hours", 93_600_000),
        ("2 weeks, 1 day", 15 * 86_400_000),
        ("01:30:00", 5_400_000),
        ("1 day 00:00:01.5", 86_401_500),
        ("PT90M", 5_400_000),
        ("P1DT2H", 93_600_000),
        ("5s", 5_000),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert interval_milliseconds(text, SPAN) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "1 month", "0 s", "hour", "1", "-1 hour", "P", "1 hour x", "PT\u0663M", "\u0663 h"]
)
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(SqlError, match="is not an interval"):
        interval_milliseconds(text, SPAN)


@pytest.mark.parametrize("options", ["", ", fields.id.kind = 'sequence'"])
def test_a_generated_split_has_no_latest_offset(options: str) -> None:
    world = CannedWorld()
    world.run(f"CREATE SOURCE g (id BIGINT) WITH (connector = 'datagen'{options})", "PAUSE SOURCE g")
    with pytest.raises(SqlError, match='split "1-0" has no end, because its records are generated') as refused:
        world.plan("INJECT SOURCE OFFSETS g TO LATEST ALLOW GAPS")
    assert "INJECT SOURCE OFFSETS g TO EARLIEST" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "options",
    [
        {"fields.id.kind": "sequence", "fields.id.end": "99"},
        {"datagen.rows.total": "100", "datagen.rows.per.second": "10"},
    ],
)
def test_a_generated_split_with_an_end_has_a_latest_offset(options: dict[str, str]) -> None:
    (split,) = connector("datagen").look(options).splits.values()
    assert (split.end, split.is_endless, split.has_end) == (100, True, True)
    (other,) = connector("datagen").look({}).splits.values()
    assert not other.has_end
