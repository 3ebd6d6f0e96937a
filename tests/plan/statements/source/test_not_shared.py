"""Sources that are not shared: each view reads directly, and a statement on the source applies to all of them."""

from __future__ import annotations

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.model.job_ids import fragment_object, fragment_source, reader_fragment
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from tests.plan.canned import ELSEWHERE, CannedWorld, create_source, refused
from tests.plan.canned_inspector import positions_in

ALONE = "shared = 'false'"
SINK = (
    "CREATE SINK k FROM {} WITH (connector = 'kafka', topic = 'out', type = 'append-only', "
    "properties.bootstrap.server = '127.0.0.1:9092') FORMAT PLAIN ENCODE JSON"
)


def view(name: str, *sources: str) -> str:
    first, *others = sources or ("s",)
    joins = "".join(f" JOIN {other} USING (id)" for other in others)
    return f"CREATE MATERIALIZED VIEW {name} AS SELECT id FROM {first}{joins}"


def two_views(*options: str) -> CannedWorld:
    """A source on ``old`` (two partitions) that is not shared, views v (2) and w (3) on it, and a topic ``new``."""
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("new", (0, 5), (3, 9), (0, 0))
    world.run(create_source("s", "old", ALONE, *options), view("v"), view("w"))
    return world


def read_on(world: CannedWorld, fragment: str, **to: int) -> None:
    for name, end in to.items():
        split = ":".join(name.rsplit("_", 1))
        world.moved[f"{fragment}/{split}"] = end
        world.read.add(split)


def spec(world: CannedWorld, job: str) -> ViewSpec:
    found = desired_jobs(world.snapshot)[job]
    assert isinstance(found, ViewSpec)
    return found


def offsets(world: CannedWorld, fragment: str) -> dict[str, int]:
    return {split: state.offset for split, state in positions_in(world, 1, fragment).states.items()}


def shown(world: CannedWorld, text: str) -> list[tuple[object, ...]]:
    plan = world.plan(text)
    assert plan.table is not None
    return list(plan.table.rows)


def test_a_fragment_names_the_view_and_the_source() -> None:
    assert reader_fragment(9, 7) == "mv-9:7"
    assert (fragment_object("mv-9:7"), fragment_source("mv-9:7")) == (9, 7)
    assert (fragment_object("ingest-7"), fragment_source("ingest-7")) == (7, 7)


def test_the_source_itself_reads_nothing_and_each_view_has_its_splits() -> None:
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    assert world.answers(create_source("s", "old", ALONE)) == [("CREATED", "2 splits, not shared")]
    assert not world.snapshot.assigned
    world.run(view("v"))
    assert list(desired_jobs(world.snapshot)) == ["mv-2"]
    (reader,) = spec(world, "mv-2").readers
    assert (reader.fragment, reader.source_id, reader.splits) == ("mv-2:1", 1, ("old:0", "old:1"))
    assert offsets(world, "mv-2:1") == {"old:0": 10, "old:1": 0}


def test_latest_is_the_moment_of_the_view() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.run(create_source("s", "old", ALONE, "scan.startup.mode = 'latest'"), view("v"))
    world.put_topic("old", (0, 9))
    world.run(view("w"))
    assert (offsets(world, "mv-2:1"), offsets(world, "mv-3:1")) == ({"old:0": 5}, {"old:0": 9})


def test_a_session_may_set_it_and_show_create_shows_it() -> None:
    world = CannedWorld(shares_sources=False)
    world.put_topic("old", (0, 5))
    world.run(create_source("s", "old"), create_source("t", "old", "shared = true"))
    records = {name: world.snapshot.find("source", name) for name in "st"}
    assert [record.is_shared for record in records.values() if record is not None] == [False, True]
    (row,) = shown(world, "SHOW CREATE SOURCE s")
    assert "shared = 'false'" in str(row[1])
    again = CannedWorld()
    again.put_topic("old", (0, 5))
    again.run(str(row[1]))
    assert again.snapshot.find("source", "s") == records["s"]


@pytest.mark.parametrize("change", ["SET (shared = 'true')", "SET (topic = 'new'), UNSET (shared)"])
def test_shared_cannot_change_after_the_source_is_created(change: str) -> None:
    error = refused(two_views(), f"ALTER SOURCE s UNSAFE {change}")
    assert (error.code, error.message) == ("RW302", 'whether source "s" is shared cannot change')


def test_a_join_has_a_fragment_per_input_and_reads_the_log_of_a_shared_one() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.put_topic("new", (0, 5))
    world.run(create_source("a", "old", ALONE), create_source("b", "new", ALONE), create_source("c", "new"))
    world.run(view("v", "a", "b", "c"))
    found = spec(world, "mv-4")
    assert [reader.fragment for reader in found.readers] == ["mv-4:1", "mv-4:2"]
    assert [given.name for given in found.inputs if found.reader_of(given.id) is None] == ["c"]
    assert list(desired_jobs(world.snapshot)) == ["ingest-3", "mv-4"]


def test_the_shared_reader_runs_while_a_view_or_sink_reads_its_log_whatever_else_they_read() -> None:
    world = CannedWorld()
    for topic in ("old", "new", "out"):
        world.put_topic(topic, (0, 5))
    world.run(create_source("a", "old", ALONE), create_source("c", "new"))

    def jobs() -> list[str]:
        return list(desired_jobs(world.snapshot))

    world.run(view("v", "a"))
    assert jobs() == ["mv-3"]
    world.run(view("w", "a", "c"))
    assert jobs() == ["ingest-2", "mv-3", "mv-4"]
    world.run("PAUSE SOURCE a")
    assert jobs() == ["ingest-2"]
    world.run("RESUME SOURCE a", "PAUSE SOURCE c")
    assert jobs() == ["mv-3", "mv-4"]
    world.run("RESUME SOURCE c", SINK.format("c"))
    assert jobs() == ["ingest-2", "mv-3", "mv-4", "sink-7"]
    world.run("DROP MATERIALIZED VIEW w")
    assert jobs() == ["ingest-2", "mv-3", "sink-7"]
    world.run("PAUSE ALL SOURCES")
    assert jobs() == ["sink-7"]
    world.run("RESUME ALL SOURCES", "DROP SINK k")
    assert jobs() == ["mv-3"]
    world.run("ALTER SOURCE a SET source_rate_limit = 0")
    assert jobs() == []
    assert [row[3] for row in shown(world, "SHOW JOBS") if row[0] == "mv-3"] == ["THROTTLED"]


def test_a_sink_reads_it_through_a_view() -> None:
    world = two_views()
    world.put_topic("out")
    error = refused(world, SINK.format("s"))
    assert (error.code, "SELECT * FROM s" in (error.hint or "")) == ("RW301", True)
    world.run(SINK.format("v"))


def test_inject_moves_every_reader_each_from_its_own_position() -> None:
    world = two_views()
    read_on(world, "mv-2:1", old_0=40, old_1=50)
    read_on(world, "mv-3:1", old_0=30)
    world.run("PAUSE SOURCE s")
    assert not desired_jobs(world.snapshot)
    answers = world.answers("INJECT SOURCE OFFSETS s VALUES ('0' = 20) ALLOW DUPLICATES")
    assert answers == [
        ("INJECTED", "old:0 at 20 (was 40) [v]"),
        ("KEPT", "not named, position kept: old:1"),
        ("INJECTED", "old:0 at 20 (was 30) [w]"),
    ]
    assert offsets(world, "mv-2:1") == {"old:0": 20, "old:1": 50}
    assert offsets(world, "mv-3:1") == {"old:0": 20, "old:1": 0}
    preview = world.operations[0].plan
    assert "source s, read by v" in preview
    assert "DUPLICATES 20" in preview
    assert "source s, read by w" in preview
    assert "DUPLICATES 10" in preview
    world.run("RESUME SOURCE s")
    assert list(desired_jobs(world.snapshot)) == ["mv-2", "mv-3"]
    assert spec(world, "mv-3").readers[0].since == 5


def test_inject_waits_for_the_jobs_of_all_readers() -> None:
    world = two_views()
    world.run("PAUSE SOURCE s")
    world.jobs["mv-3"] = JobStatus(job="mv-3", object_id=3, state="STOPPING")
    error = refused(world, "INJECT SOURCE OFFSETS s TO EARLIEST")
    assert error.code == "RW305"


def test_without_a_reader_there_is_nothing_to_inject_and_the_hint_says_how() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.run(create_source("s", "old", ALONE, "paused = 'true'"))
    error = refused(world, "INJECT SOURCE OFFSETS s TO LATEST")
    assert error.code == "RW310"
    assert "CREATE MATERIALIZED VIEW" in (error.hint or "")
    world.run(view("v"), "INJECT SOURCE OFFSETS s TO LATEST")
    assert offsets(world, "mv-3:1") == {"old:0": 5}


def test_unsafe_set_moves_every_reader_to_the_new_topic_in_one_operation() -> None:
    world = two_views()
    read_on(world, "mv-2:1", old_0=40)
    plan = world.run("ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert plan.operation is not None
    assert plan.operation.objects == ("s", "v", "w")
    assert [row.change for row in plan.changes] == ["ALTERED", "NOTICE", "NOTICE"]
    assert [step.describe() for step in plan.steps if not step.is_catalog] == ["RestartJob mv-2", "RestartJob mv-3"]
    for job in ("mv-2", "mv-3"):
        assert spec(world, job).readers[0].splits == ("new:0", "new:1", "new:2")
    answers = world.answers("RESET SOURCE SPLITS s")
    assert answers[:2] == [("FORGOTTEN", "old:0"), ("FORGOTTEN", "old:1")]
    assert offsets(world, "mv-3:1") == {"new:0": 0, "new:1": 3, "new:2": 0}


def test_unsafe_set_of_a_source_that_nobody_reads_changes_its_definition_alone() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.put_topic("new", (0, 5), (0, 3))
    world.run(create_source("s", "old", ALONE), "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    assert world.named("s") == ("new",)
    assert not world.snapshot.assigned
    assert [change for change, _ in world.answers("RESET SOURCE SPLITS s")] == ["NOTHING"]
    world.run(view("v"))
    assert offsets(world, "mv-2:1") == {"new:0": 0, "new:1": 0}


def test_reset_keeps_what_each_reader_has_come_to() -> None:
    world = two_views()
    read_on(world, "mv-2:1", old_0=40)
    assert [change for change, _ in world.answers("RESET SOURCE SPLITS s")] == ["KEPT", "KEPT", "NOTHING", "KEPT"]
    world.run("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)")
    assert offsets(world, "mv-2:1") == {"old:0": 10, "old:1": 0}


def test_undo_gives_each_reader_its_own_back() -> None:
    world = two_views()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    epoch = world.snapshot.epoch
    answers = world.answers(f"UNDO OPERATION {epoch}")
    assert ("MOVED", "old:0 at 10 (was 20) [v]") in answers
    assert ("MOVED", "old:0 at 10 (was 20) [w]") in answers
    assert offsets(world, "mv-2:1") == offsets(world, "mv-3:1") == {"old:0": 10, "old:1": 0}


def test_a_block_moves_all_readers_as_one_operation() -> None:
    world = two_views()
    from rw_sql.syntax import parse_statement
    from rw_sql.syntax.statements import UnsafeBlock

    block = UnsafeBlock(
        statements=tuple(
            parse_statement(text)
            for text in ("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('1' = 7)", "RESUME SOURCE s")
        )
    )
    from rw_sql.plan.lower import lower

    plan = lower(block, world.snapshot, world.inspector)
    assert plan.operation is not None
    world.commit(plan.operation)
    assert offsets(world, "mv-2:1") == offsets(world, "mv-3:1") == {"old:0": 10, "old:1": 7}
    assert plan.preview is not None
    assert [part.title for part in plan.preview.parts] == ["source s, read by v", "source s, read by w"]


def test_resume_takes_up_new_partitions_for_all() -> None:
    world = two_views()
    world.run("PAUSE SOURCE s")
    world.put_topic("old", (10, 50), (0, 50), (0, 4))
    assert world.answers("RESUME SOURCE s") == [("RESUMED", "1 new split: old:2 at 0")]
    for fragment in ("mv-2:1", "mv-3:1"):
        assert sorted(world.snapshot.splits(fragment)) == ["old:0", "old:1", "old:2"]


def test_dropping_a_view_forgets_its_reader() -> None:
    world = two_views()
    world.run("DROP MATERIALIZED VIEW v")
    assert list(world.snapshot.assigned) == ["mv-3:1"]
    world.run("DROP SOURCE s CASCADE")
    assert not world.snapshot.assigned
    assert not world.snapshot.stored


def test_show_source_splits_and_continuity_have_a_row_per_reader() -> None:
    world = two_views()
    read_on(world, "mv-2:1", old_0=40)
    rows = [(row[0], row[2], row[-1]) for row in shown(world, "SHOW SOURCE SPLITS s")]
    assert rows == [
        ("old:0", 40, "mv-2:1"),
        ("old:1", 0, "mv-2:1"),
        ("old:0", 10, "mv-3:1"),
        ("old:1", 0, "mv-3:1"),
    ]
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 20)")
    found = [(row[3], row[4], row[-2], row[-1]) for row in shown(world, "SHOW SOURCE CONTINUITY s")]
    assert ("old:0", "DUPLICATES 20", "PENDING", "mv-2:1") in found
    assert ("old:0", "GAP 10", "PENDING", "mv-3:1") in found


def test_show_jobs_has_no_job_of_the_source_itself_and_shows_a_pause() -> None:
    world = two_views()
    world.jobs["mv-2"] = JobStatus(job="mv-2", object_id=2, state="RUNNING")
    world.jobs["mv-3"] = JobStatus(job="mv-3", object_id=3, state="STALLED", reason="EXPIRED old:0")
    assert [row[0] for row in shown(world, "SHOW JOBS")] == ["mv-2", "mv-3"]
    (row,) = shown(world, "SHOW SOURCES")
    assert row[2:7] == ("STALLED", "mv-3: EXPIRED old:0", 2, False, "v, w")
    world.run("PAUSE SOURCE s")
    assert {row[3] for row in shown(world, "SHOW JOBS")} == {"PAUSED"}


def test_alter_connection_looks_at_every_reader() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 5))
    world.put_topic("old", (0, 5), at=ELSEWHERE)
    world.run("CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '127.0.0.1:9092')")
    world.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old', shared = 'false') "
        "FORMAT PLAIN ENCODE JSON",
        view("v"),
        view("w"),
    )
    plan = world.run(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    assert plan.is_unsafe
    assert plan.preview is not None
    assert [(split.reader, split.split) for split in plan.preview.splits] == [("v", "old:0"), ("w", "old:0")]
    jobs = [step.describe() for step in plan.steps if not step.is_catalog]
    assert jobs == ["RestartJob mv-3", "RestartJob mv-4"]


def test_offsets_are_taken_from_the_one_reader_that_another_source_has() -> None:
    world = two_views()
    world.run(create_source("t", "old"), "PAUSE SOURCE t")
    error = refused(world, "INJECT SOURCE OFFSETS t FROM SOURCE s")
    assert (error.code, "v, w read it" in error.message) == ("RW310", True)
    world.run("DROP MATERIALIZED VIEW w")
    read_on(world, "mv-2:1", old_0=40)
    world.run("INJECT SOURCE OFFSETS t FROM SOURCE s ALLOW GAPS")
    assert world.states("t") == {"old:0": 40, "old:1": 0}


def test_a_query_names_it_once_or_through_with() -> None:
    world = two_views()
    for query in ("SELECT a.id FROM s a JOIN s b ON a.id = b.id", "SELECT id FROM s UNION ALL SELECT id FROM S"):
        error = refused(world, f"CREATE MATERIALIZED VIEW x AS {query}")
        assert (error.code, "WITH one AS (SELECT * FROM s)" in (error.hint or "")) == ("RW301", True)
    world.run("CREATE MATERIALIZED VIEW x AS WITH a AS (SELECT id FROM s) SELECT id FROM a UNION ALL SELECT -id FROM a")
    world.run(create_source("c", "old"), "CREATE MATERIALIZED VIEW y AS SELECT a.id FROM c a JOIN c b ON a.id = b.id")
