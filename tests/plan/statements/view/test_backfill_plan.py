"""The history of a new view, planned from the source's position, its log's content and the upstream's content."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.errors import SqlError
from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.backfill_ranges import (
    BackfillChunk,
    History,
    HistoryPlan,
    SplitHistory,
    next_chunk,
    plan_portions,
    reread_ranges,
)
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.model.offset_ranges import LogPiece, total, with_piece, without
from rw_sql.plan.statements.view.backfill_plan import view_options, with_rate_limit
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.statements import CreateMaterializedView
from tests.plan.canned import HERE, CannedWorld, create_source
from tests.plan.canned_inspector import CannedUpstreams

VIEW = "CREATE MATERIALIZED VIEW v{} AS SELECT id FROM s"
ALLOWED = "ALTER SYSTEM SET enable_unsafe_ops = true"


def world(*bounds: tuple[int, int], options: tuple[str, ...] = ()) -> CannedWorld:
    found = CannedWorld()
    found.put_topic("t", *(bounds or ((0, 100), (0, 100))))
    found.run(ALLOWED, create_source("s", "t", *options))
    return found


def history_of(found: CannedWorld, options: str = "") -> History | None:
    found.run(VIEW.format(f" WITH ({options})" if options else ""))
    record = found.snapshot.find("materialized_view", "v")
    assert isinstance(record, MaterializedViewRecord)
    assert record_from_json(record_to_json(record)) == record
    (text,) = record.histories or ("",)
    (spec,) = [spec for spec in desired_jobs(found.snapshot).values() if isinstance(spec, ViewSpec)]
    assert spec.inputs[0].history == text
    return History.from_text(text) if text else None


def spans(history: History | None) -> dict[str, tuple[tuple[int, int], ...]]:
    assert history is not None
    return {split.split: split.wanted for split in history.splits}


def test_a_source_that_was_never_read_has_no_history() -> None:
    assert history_of(world()) is None


def test_a_log_that_holds_everything_once_is_just_read() -> None:
    found = world()
    found.read_on("s", t_0=40, t_1=7)
    found.run_number = 2
    found.read_on("s", t_0=60)
    found.asked.clear()
    assert history_of(found) is None
    assert not found.asked_of(CannedUpstreams.look)


def test_records_that_were_read_twice_are_in_the_history_once() -> None:
    found = world()
    found.read_on("s", t_0=40, t_1=7)
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('t:0' = 10) ALLOW DUPLICATES", "RESUME SOURCE s")
    found.run_number = 2
    found.read_on("s", t_0=30)
    history = history_of(found)
    # Offsets from 30 on are read again by the reader itself: they are live, and not part of the history.
    assert spans(history) == {"t:0": ((0, 30),), "t:1": ((0, 7),)}
    assert history is not None
    assert history.log_version == 7
    assert plan_portions(history, found.pieces, {}).from_upstream == ()


def test_a_record_that_was_read_twice_is_taken_from_its_newest_reading() -> None:
    """After a log was cut, the log has rows of lost records beside those of the records that were read instead."""
    found = world()
    found.read_on("s", t_0=40)
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('t:0' = 10) ALLOW DUPLICATES", "RESUME SOURCE s")
    found.run_number = 2
    found.read_on("s", t_0=50)
    history = history_of(found)
    assert history is not None
    assert plan_portions(history, found.pieces, {}).from_log == (
        BackfillChunk(split="t:0", start=10, end=50, runs=(2, 2)),
        BackfillChunk(split="t:0", start=0, end=10, runs=(1, 1)),
    )


def pieces_of(*parts: tuple[int, int, int, int | None]) -> dict[str, tuple[LogPiece, ...]]:
    """The pieces of ``t:0``: the run, which is also the version, the offsets, and the term."""
    return {
        "t:0": tuple(
            LogPiece(first_run=run, last_run=run, start=start, end=end, version=run, epoch=run, term=term)
            for run, start, end, term in parts
        )
    }


def test_rows_that_the_log_gets_later_are_not_copied_because_they_are_live() -> None:
    history = History(source_id=1, log_version=2, splits=(SplitHistory(split="t:0", start=0, end=20, term=1),))
    pieces = pieces_of((1, 5, 20, 1), (3, 0, 30, 2))
    assert plan_portions(history, pieces, {}).from_log == (
        BackfillChunk(split="t:0", start=5, end=20, runs=(1, 1)),
        BackfillChunk(split="t:0", start=0, end=5, runs=(3, 3)),
    )


def test_offsets_that_were_read_again_in_another_term_may_have_other_records() -> None:
    split = SplitHistory(split="t:0", start=0, end=20, term=2, since=9)
    history = History(source_id=1, log_version=2, splits=(split,))
    pieces = pieces_of((1, 5, 12, 1), (3, 8, 30, 2), (4, 10, 30, 3))
    # In the same term, they are the same records. Each part has the term in which the upstream had its records.
    assert reread_ranges(history, pieces, {"t:0": ((9, 11),)}) == (
        BackfillChunk(split="t:0", start=8, end=9, term=1),
        BackfillChunk(split="t:0", start=11, end=12, term=1),
        BackfillChunk(split="t:0", start=11, end=12, term=1),
        BackfillChunk(split="t:0", start=12, end=20, term=2),
    )
    replaced = {"t:0": ((10, 20),)}
    assert plan_portions(history, pieces, {}, replaced=replaced) == HistoryPlan(
        from_log=(BackfillChunk(split="t:0", start=5, end=10, runs=(1, 1)),),
        from_upstream=(BackfillChunk(split="t:0", start=0, end=5, term=2),),
    )
    # Rows of a run from before the statement that set the position are not live.
    guarded = replace(history, splits=(replace(split, is_guarded=True),))
    assert reread_ranges(guarded, pieces, {}) == ()
    assert reread_ranges(replace(guarded, splits=(replace(split, is_guarded=True, since=4),)), pieces, {}) == (
        BackfillChunk(split="t:0", start=10, end=12, term=1),
        BackfillChunk(split="t:0", start=12, end=20, term=2),
    )


def test_records_of_deleted_rows_are_read_upstream_in_the_term_of_their_reading() -> None:
    history = History(source_id=1, log_version=2, splits=(SplitHistory(split="t:0", start=0, end=30, term=3),))
    planned = plan_portions(history, {}, {}, readings=pieces_of((1, 5, 12, 1), (2, 12, 20, None)))
    assert planned.from_upstream == (
        BackfillChunk(split="t:0", start=0, end=5, term=3),
        BackfillChunk(split="t:0", start=5, end=12, term=1),
        BackfillChunk(split="t:0", start=12, end=30, term=3),
    )


def test_a_gap_is_read_upstream() -> None:
    found = world()
    found.read_on("s", t_0=40)
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('t:0' = 60) ALLOW GAPS", "RESUME SOURCE s")
    history = history_of(found)
    assert history is not None
    assert spans(history)["t:0"] == ((0, 60),)
    planned = plan_portions(history, found.pieces, {"t:0": ((0, 5),)})
    assert planned.from_log == (BackfillChunk(split="t:0", start=5, end=40, runs=(1, 1)),)
    assert planned.from_upstream == (BackfillChunk(split="t:0", start=40, end=60),)


def test_records_that_no_longer_exist_are_reported() -> None:
    found = world()
    found.read_on("s", t_0=40)
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('t:0' = 60) ALLOW GAPS", "RESUME SOURCE s")
    found.put_topic("t", (50, 100), (0, 100))
    notices = [row.detail for row in found.plan(VIEW.format("")).changes if row.change == "NOTICE"]
    assert notices == ["10 records from the history of s exist neither in its log nor in the upstream any more"]
    assert spans(history_of(found))["t:0"] == ((0, 40), (50, 60))


def test_another_incarnation_of_a_topic_is_no_history_of_this_one() -> None:
    found = world()
    found.read_on("s", t_0=40, t_1=40)
    found.put_topic("t", (0, 9), (0, 9), life="second")
    found.run("PAUSE SOURCE s", "RESET SOURCE SPLITS s", "RESUME SOURCE s")
    history = history_of(found)
    assert history is not None
    assert spans(history) == {"t:0": (), "t:1": ()}
    assert {split.incarnation for split in history.splits} == {"second"}


def test_rows_of_a_run_from_before_a_statement_are_not_live() -> None:
    found = world()
    found.read_on("s", t_0=40)
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('t:0' = 20) ALLOW DUPLICATES", "RESUME SOURCE s")
    found.reader_epoch = 3
    history = history_of(found)
    assert history is not None
    assert [split.split for split in history.guarded] == ["t:0"]
    assert history.guarded[0].since > 3


def test_earliest_reaches_back_before_the_source() -> None:
    found = world((5, 100), (0, 100), options=("scan.startup.mode = 'latest'",))
    found.put_topic("t", (5, 120), (0, 120))
    found.read_on("s", t_0=110)
    history = history_of(found, "scan.startup.mode = 'earliest'")
    assert spans(history) == {"t:0": ((5, 110),), "t:1": ((0, 100),)}
    assert history is not None
    assert plan_portions(history, found.pieces, {}).from_upstream == (
        BackfillChunk(split="t:0", start=5, end=100),
        BackfillChunk(split="t:1", start=0, end=100),
    )


def test_latest_is_the_moment_of_create_source_although_the_upstream_no_longer_shows_its_identity() -> None:
    found = world((0, 100), (0, 100), options=("scan.startup.mode = 'latest'",))
    found.put_topic("t", (0, 150), (0, 150))
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 40)", "RESUME SOURCE s")
    found.read_on("s", t_0=150, t_1=150)
    found.topics[HERE, "t"] = tuple(replace(split, incarnation=None) for split in found.topics[HERE, "t"])
    history = history_of(found, "scan.startup.mode = 'latest'")
    assert spans(history) == {"t:0": ((100, 150),), "t:1": ((100, 150),)}


def test_latest_is_the_moment_of_create_source_although_the_brokers_reported_no_topic_id_then() -> None:
    found = CannedWorld()
    found.put_topic("t", (0, 100))
    named = found.topics[HERE, "t"]
    found.topics[HERE, "t"] = tuple(replace(split, incarnation=None) for split in named)
    found.run(create_source("s", "t"))
    found.put_topic("t", (0, 150), (7, 30))
    found.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 40)", "RESET SOURCE SPLITS s", "RESUME SOURCE s")
    found.read_on("s", t_0=150, t_1=30)
    history = history_of(found, "scan.startup.mode = 'latest'")
    assert spans(history) == {"t:0": ((100, 150),), "t:1": ((7, 30),)}


def test_latest_is_the_moment_of_create_source_also_where_the_reader_is_not_there_yet() -> None:
    found = world((0, 50), (0, 80))
    found.put_topic("t", (0, 200), (0, 200), (0, 30))
    found.read_on("s", t_0=120)
    history = history_of(found, "scan.startup.mode = 'latest'")
    assert spans(history) == {"t:0": ((50, 120),), "t:1": ()}
    assert history is not None
    assert [(split.split, split.start) for split in history.guarded] == [("t:1", 80)]


def test_a_time_is_resolved_when_the_view_is_made() -> None:
    found = world()
    found.read_on("s", t_0=40, t_1=7)
    found.times = {"t:0": 12, "t:1": 30}
    history = history_of(found, "scan.startup.mode = 'timestamp', scan.startup.timestamp.millis = '1700000000000'")
    assert spans(history) == {"t:0": ((12, 40),), "t:1": ()}
    assert history is not None
    assert [split.start for split in history.guarded] == [30]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("scan.startup.mode = 'newest'", "RW208"),
        ("scan.startup.mode = 'timestamp'", "RW207"),
        ("topic = 't'", "RW204"),
        ("backfill_rate_limit = 'fast'", "RW208"),
        ("scan.startup.mode = SECRET x", "RW208"),
    ],
)
def test_options_that_a_view_does_not_take(options: str, code: str) -> None:
    found = world()
    with pytest.raises(SqlError) as refused:
        found.plan(VIEW.format(f" WITH ({options})"))
    assert refused.value.code == code
    assert refused.value.span is not None


def test_a_view_over_views_has_no_start_of_its_own() -> None:
    found = world()
    found.run(VIEW.format(""))
    with pytest.raises(SqlError) as refused:
        found.plan("CREATE MATERIALIZED VIEW w WITH (scan.startup.mode = 'earliest') AS SELECT id FROM v")
    assert refused.value.code == "RW208"


def test_an_upstream_that_does_not_answer_is_asked_only_where_it_must_be() -> None:
    found = world()
    found.read_on("s", t_0=40)
    found.silent.add("127.0.0.1:9092")
    assert history_of(found) is None
    with pytest.raises(SqlError) as refused:
        found.plan("CREATE MATERIALIZED VIEW w WITH (scan.startup.mode = 'earliest') AS SELECT id FROM s")
    assert refused.value.code == "RW401"


def test_ten_thousand_splits_are_a_short_text() -> None:
    splits = tuple(
        SplitHistory(split=f"wide:{number}", start=0, end=1000, cluster="c" * 22, incarnation="i" * 22, since=3)
        for number in range(10_000)
    )
    text = History(source_id=1, log_version=9, splits=splits).to_text()
    assert len(text) < 300
    assert History.from_text(text).splits == splits


offsets = st.integers(0, 40)


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, dict[str, tuple[LogPiece, ...]]]:
    """A history of two splits, and a log whose reader was moved, with some rows of another incarnation."""
    splits, pieces = [], {}
    for number in range(2):
        start = draw(offsets)
        end = draw(st.integers(start, 45))
        gone = ((start + 1, start + 3),) if draw(st.booleans()) and end > start + 3 else ()
        splits.append(SplitHistory(split=f"t:{number}", start=start, end=end, incarnation="now", gone=gone))
        held: tuple[LogPiece, ...] = ()
        for run in range(1, draw(st.integers(1, 6))):
            low = draw(offsets)
            piece = LogPiece(
                first_run=run,
                last_run=run,
                start=low,
                end=low + draw(st.integers(0, 15)),
                incarnation=draw(st.sampled_from(("now", "then", None))),
                version=run,
                term=draw(st.sampled_from((None, 1, 2))),
            )
            held = with_piece(held, piece)
        pieces[f"t:{number}"] = held
    return History(source_id=1, log_version=3, splits=tuple(splits)), pieces


@given(histories(), st.integers(1, 25))
def test_every_offset_is_read_once_chunk_by_chunk(
    given_: tuple[History, dict[str, tuple[LogPiece, ...]]], most: int
) -> None:
    history, pieces = given_
    assert History.from_text(history.to_text()) == history
    done: dict[str, tuple[tuple[int, int], ...]] = {}
    for _ in range(500):
        planned = plan_portions(history, pieces, done)
        chunk = next_chunk(planned.from_log or planned.from_upstream, most)
        if not chunk:
            break
        assert 0 < sum(portion.end - portion.start for portion in chunk) <= most
        assert len({portion.split for portion in chunk}) == len(chunk)
        for portion in chunk:
            known = done.get(portion.split, ())
            assert without(((portion.start, portion.end),), known) == ((portion.start, portion.end),)
            if portion.runs is not None:
                assert any(
                    piece.start <= portion.start
                    and portion.end <= piece.end
                    and piece.incarnation != "then"
                    and (piece.first_run, piece.last_run) == portion.runs
                    for piece in pieces[portion.split]
                )
            done[portion.split] = tuple(sorted((*known, (portion.start, portion.end))))
    assert {split.split: total(split.wanted) for split in history.splits} == {
        split.split: total(done.get(split.split, ())) for split in history.splits
    }


def being_made(found: CannedWorld, done: int = 45) -> MaterializedViewRecord:
    """The view ``v`` of this world, so far through its history."""
    record = found.snapshot.find("materialized_view", "v")
    assert isinstance(record, MaterializedViewRecord)
    job = f"mv-{record.id}"
    found.backfills[job] = BackfillProgress(
        job=job,
        object_id=record.id,
        generation=1,
        phase="reading history",
        done=done,
        total=100,
        started_ms=1,
        updated_ms=2,
    )
    found.jobs[job] = JobStatus(job=job, object_id=record.id, state="RUNNING")
    return record


def shown(found: CannedWorld) -> tuple[object, object]:
    table = found.plan("SHOW JOBS LIKE 'v'").table
    assert table is not None
    (row,) = table.rows
    return row[3], row[4]


def test_a_view_that_reads_its_history_is_backfilling() -> None:
    found = world()
    found.run(VIEW.format(" WITH (backfill_rate_limit = 7)"))
    being_made(found)
    assert shown(found) == ("BACKFILLING", "reading history: 45.00% (45/100)")
    assert found.answers("ALTER MATERIALIZED VIEW v SET BACKFILL_RATE_LIMIT = 0") == [
        ("ALTERED", "backfill_rate_limit: 7 -> 0")
    ]
    assert shown(found) == ("BACKFILLING", "reading history: 45.00% (45/100); backfill_rate_limit is 0")
    assert found.answers("ALTER MATERIALIZED VIEW v SET BACKFILL_RATE_LIMIT = DEFAULT") == [
        ("ALTERED", "backfill_rate_limit: 0 -> no limit")
    ]
    assert found.answers("ALTER MATERIALIZED VIEW v SET BACKFILL_RATE_LIMIT = DEFAULT")[0][0] == "NOTHING"
    record = found.snapshot.find("materialized_view", "v")
    assert isinstance(record, MaterializedViewRecord)
    assert "backfill_rate_limit" not in record.definition


def test_the_rate_of_the_session_is_written_into_the_view() -> None:
    statement = parse_statement(VIEW.format(""))
    assert isinstance(statement, CreateMaterializedView)
    assert with_rate_limit(statement, "-1") is statement
    limited = with_rate_limit(statement, "500")
    assert view_options(limited).rate_limit == 500
    assert with_rate_limit(limited, "7") is limited
    assert parse_statement(render(limited)) == limited


def test_cancel_drops_what_is_being_made_and_nothing_else() -> None:
    found = world()
    found.run(VIEW.format(""))
    with pytest.raises(SqlError) as refused:
        found.plan("CANCEL JOBS 3")
    assert refused.value.code == "RW203"
    record = being_made(found)
    assert found.answers(f"CANCEL JOBS {record.id}") == [("CANCELLED", "reading history: 45.00% (45/100)")]
    assert found.snapshot.find("materialized_view", "v") is None
    assert found.operations[0].kind == "CANCEL JOBS"


def test_what_others_read_is_not_cancelled() -> None:
    found = world()
    found.run(VIEW.format(""), "CREATE MATERIALIZED VIEW w AS SELECT id FROM v")
    record = being_made(found)
    with pytest.raises(SqlError) as refused:
        found.plan(f"CANCEL JOBS {record.id}")
    assert refused.value.code == "RW306"
