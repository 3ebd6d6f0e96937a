"""Every statement that sets positions by a look at the upstream stores the terms of the logs with them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rw_sql.metastore.records import MaterializedViewRecord, PutSplitStates
from rw_sql.model.backfill_ranges import History
from rw_sql.model.offset_ranges import ReadIncarnation, Spans
from rw_sql.plan.result.preview_text import render_preview
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world
from tests.plan.canned_inspector import CannedUpstreams

TERM = 7


def elect(world: CannedWorld, topic: str, term: int) -> None:
    """The logs of a topic have another leader."""
    world.topics[HERE, topic] = tuple(replace(split, term=term) for split in world.topics[HERE, topic])


def terms_set(world: CannedWorld, text: str) -> dict[str, int | None]:
    """The terms of the positions that a statement sets."""
    operation = world.run(text).operation
    assert operation is not None
    return {
        split: json.loads(state).get("term")
        for change in operation.changes
        if isinstance(change, PutSplitStates)
        for split, state in change.states.items()
    }


@pytest.mark.parametrize(
    ("statement", "splits"),
    [
        ("INJECT SOURCE OFFSETS s VALUES ('old:0' = 20)", ["old:0"]),
        ("""INJECT SOURCE OFFSETS s VALUES ('old:0' = '{"offset": 20, "term": 3}')""", ["old:0"]),
        ("INJECT SOURCE OFFSETS s TO EARLIEST", ["old:0", "old:1"]),
        ("INJECT SOURCE OFFSETS s TO LATEST", ["old:0", "old:1"]),
        ("INJECT SOURCE OFFSETS s VALUES ('old:0' = 99, 'old:1' = NULL) ALLOW CLAMP, GAPS", ["old:0", "old:1"]),
        ("SKIP RECORD AT '0' 40 ON SOURCE s", ["old:0"]),
        ("RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)", ["old:0", "old:1"]),
    ],
)
def test_a_position_that_a_statement_sets_has_the_term_of_its_log(statement: str, splits: list[str]) -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    elect(world, "old", TERM)
    world.asked.clear()
    assert terms_set(world, statement) == dict.fromkeys(splits, TERM)
    # The look of the preview has them.
    methods = {asked.method for asked in world.asked if asked.method.startswith(CannedUpstreams.__name__)}
    assert methods == {CannedUpstreams.look.__qualname__, CannedUpstreams.sparse_topics.__qualname__}


@pytest.mark.parametrize("mode", ["earliest", "latest"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_source_that_begins_has_the_terms_of_its_logs(mode: str, is_shared: bool) -> None:
    world = CannedWorld()
    world.put_topic("new", (0, 5), (3, 9))
    elect(world, "new", TERM)
    source = create_source("s", "new", f"scan.startup.mode = '{mode}'", f"shared = '{str(is_shared).lower()}'")
    made = terms_set(world, source) | terms_set(world, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    assert made == {"new:0": TERM, "new:1": TERM}


def test_a_source_that_moves_has_the_terms_of_its_new_logs() -> None:
    world = moved_world()
    elect(world, "new", TERM)
    assert terms_set(world, "ALTER SOURCE s UNSAFE SET (topic = 'new')") == {f"new:{n}": TERM for n in range(3)}


def test_a_position_that_its_upstream_does_not_show_has_no_term() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s")
    elect(world, "old", TERM)
    world.silent.add(HERE)
    assert terms_set(world, "INJECT SOURCE OFFSETS s VALUES ('old:0' = 20) WITH (validate = false)") == {"old:0": None}


@pytest.mark.parametrize("target", ["VALUES ('old:0' = 20)", "VALUES ('old:0' = 99) ALLOW CLAMP", "TO EARLIEST"])
def test_a_position_keeps_the_identity_that_its_upstream_no_longer_shows(target: str) -> None:
    """Otherwise the next preview would not know what was read before."""
    world = moved_world()
    world.run("PAUSE SOURCE s")
    world.topics[HERE, "old"] = tuple(replace(split, incarnation=None) for split in world.topics[HERE, "old"])
    operation = world.run(f"INJECT SOURCE OFFSETS s {target}").operation
    assert operation is not None
    (states,) = [change.states for change in operation.changes if isinstance(change, PutSplitStates)]
    assert json.loads(states["old:0"])["incarnation"] == "first"


@pytest.mark.parametrize(
    "statement",
    [
        "INJECT SOURCE OFFSETS s VALUES ('old:0' = 30)",
        "INJECT SOURCE OFFSETS s VALUES ('old:0' = 40)",
        "SKIP RECORD AT '0' 40 ON SOURCE s",
        "RESET SOURCE SPLITS s",
        "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
        "ALTER SOURCE s UNSAFE SET (source_rate_limit = 5)",
    ],
)
def test_a_preview_compares_no_offsets_of_a_log_that_was_cut(statement: str) -> None:
    world = read_and_cut()
    preview = world.plan(statement).preview
    assert preview is not None
    assert {row.split: row.verdict for row in preview.splits}["old:0"] == "UNKNOWN (log cut at 35)"
    # The other log is as long as it was.
    assert "UNKNOWN" not in {row.split: row.verdict for row in preview.splits}["old:1"]


def test_the_preview_of_an_undo_tells_that_the_old_position_is_in_a_log_that_was_cut() -> None:
    world = read_and_cut()
    world.run("INJECT SOURCE OFFSETS s VALUES ('old:0' = 35)")
    plan = world.plan(f"UNDO OPERATION {world.operations[0].epoch}")
    assert plan.preview is not None
    assert "UNKNOWN (log cut at 35)" in render_preview(plan.preview)


def test_nothing_is_asked_while_the_leaders_stay() -> None:
    world = read_and_cut()
    elect(world, "old", TERM)
    world.asked.clear()
    world.run("INJECT SOURCE OFFSETS s VALUES ('old:0' = 30)")
    assert world.asked_of(CannedUpstreams.cut_logs) == []


def test_a_view_that_begins_with_its_source_has_the_records_after_a_cut() -> None:
    """They came after CREATE SOURCE, although their offsets are below the end that the log had then."""
    world = CannedWorld()
    world.put_topic("old", (0, 50), (0, 50))
    elect(world, "old", TERM)
    world.run(create_source("s", "old", "scan.startup.mode = 'latest'"), "PAUSE SOURCE s")
    elect(world, "old", TERM + 1)
    world.cuts["old:0"] = 35
    world.run(
        "INJECT SOURCE OFFSETS s VALUES ('old:0' = 35)",
        "CREATE MATERIALIZED VIEW v WITH (scan.startup.mode = 'latest') AS SELECT id FROM s",
    )
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    starts = {split.split: split.start for text in view.histories for split in History.from_text(text).splits}
    assert starts.get("old:0", 35) == 35


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("has_other_split", [False, True])
def test_a_later_view_has_no_record_that_the_other_views_lack(is_trimmed: bool, has_other_split: bool) -> None:
    """After an INJECT that continues after the lost records, in place of which the topic has others."""
    world = logged_and_cut()
    world.run("INJECT SOURCE OFFSETS s VALUES ('old:0' = 40)", "RESUME SOURCE s")
    world.run_number = 2
    world.read_on("s", old_0=45)
    if has_other_split:
        # Its log was not cut.
        world.read_on("s", old_1=50)
    world.is_trimmed = is_trimmed
    # The log was cut before the end that it had at CREATE SOURCE, where this view begins.
    assert wanted(world, "latest")["old:0"] == ((40, 45),)
    # The upstream's first record at this time is after the cut. The lost records are older.
    world.times = {"old:0": 36, "old:1": 50}
    assert wanted(world, "timestamp', scan.startup.timestamp.millis = '1700000000000")["old:0"] == ((40, 45),)
    world.times["old:0"] = 34
    since = wanted(world, "timestamp', scan.startup.timestamp.millis = '1700000000000")["old:0"]
    assert since == (((34, 35), (40, 45)) if is_trimmed else ((34, 45),))
    everything = wanted(world, "earliest")
    assert everything["old:0"] == (((0, 35), (40, 45)) if is_trimmed else ((0, 45),))
    assert everything.get("old:1", ()) == (((0, 50),) if has_other_split else ())
    plan = world.plan("CREATE MATERIALIZED VIEW w WITH (scan.startup.mode = 'earliest') AS SELECT id FROM s")
    notices = [row.detail for row in plan.changes if row.change == "NOTICE"]
    told = ["5 records from the history of s exist neither in its log nor in the upstream any more"]
    assert notices == (told if is_trimmed else [])


def test_a_later_view_has_the_records_that_were_read_in_place_of_the_lost_ones() -> None:
    world = logged_and_cut()
    world.run("INJECT SOURCE OFFSETS s VALUES ('old:0' = 35)", "RESUME SOURCE s")
    world.run_number = 2
    world.read_on("s", old_0=37)
    # The source skips the others, at whose offsets its log has only lost records.
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('old:0' = 40)", "RESUME SOURCE s")
    world.run_number = 3
    world.read_on("s", old_0=45)
    assert wanted(world, "latest")["old:0"] == ((35, 37), (40, 45))
    assert wanted(world, "earliest")["old:0"] == ((0, 45),)


def test_a_log_that_begins_at_the_cut_is_not_just_read() -> None:
    world = CannedWorld()
    world.put_topic("old", (0, 35))
    elect(world, "old", TERM)
    world.run(create_source("s", "old", "scan.startup.mode = 'latest'"))
    world.put_topic("old", (0, 50))
    elect(world, "old", TERM)
    world.read_on("s", old_0=40)
    elect(world, "old", TERM + 1)
    world.cuts["old:0"] = 35
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('old:0' = 40)", "RESUME SOURCE s")
    world.run_number = 2
    world.read_on("s", old_0=45)
    world.times = {"old:0": 35}
    assert wanted(world, "timestamp', scan.startup.timestamp.millis = '1700000000000") == {"old:0": ((40, 45),)}
    assert wanted(world, "earliest")["old:0"] == ((0, 45),)


def test_rows_of_a_log_that_was_not_cut_need_no_comparison() -> None:
    world = logged_and_cut()
    world.topics[HERE, "old"] = tuple(replace(split, term=TERM) for split in world.topics[HERE, "old"])
    world.is_trimmed = True
    world.asked.clear()
    assert wanted(world, "earliest")["old:0"] == ((0, 40),)
    assert world.asked_of(CannedUpstreams.cut_logs) == []


def wanted(world: CannedWorld, mode: str) -> dict[str, Spans]:
    """The offsets that a new view with this startup mode gets."""
    made = replace(world)
    made.run(f"CREATE MATERIALIZED VIEW w WITH (scan.startup.mode = '{mode}') AS SELECT id FROM s")
    view = made.snapshot.find("materialized_view", "w")
    assert isinstance(view, MaterializedViewRecord)
    if not view.histories:
        # It reads the whole log.
        return {split: ((pieces[0].start, pieces[-1].end),) for split, pieces in made.pieces.items()}
    return {split.split: split.wanted for text in view.histories for split in History.from_text(text).splits}


def logged_and_cut() -> CannedWorld:
    """As :func:`read_and_cut`, with the ranges in the source's log."""
    world = CannedWorld()
    world.put_topic("old", (0, 50), (0, 50))
    elect(world, "old", TERM)
    world.run(create_source("s", "old"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    world.read_on("s", old_0=40)
    world.run("PAUSE SOURCE s")
    elect(world, "old", TERM + 1)
    world.cuts["old:0"] = 35
    return world


def read_and_cut() -> CannedWorld:
    """A paused source whose first log was cut at 35 after it was read to 40, and grew again."""
    world = CannedWorld()
    world.put_topic("old", (0, 50), (0, 50))
    elect(world, "old", TERM)
    world.run(create_source("s", "old"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s", "PAUSE SOURCE s")
    world.run("INJECT SOURCE OFFSETS s VALUES ('old:0' = 40)")
    world.lives["old:0"] = (
        ReadIncarnation(spans=((0, 40),), reached=40, cluster=f"cluster {HERE}", incarnation="first"),
    )
    world.read.add("old:0")
    elect(world, "old", TERM + 1)
    world.cuts["old:0"] = 35
    return world
