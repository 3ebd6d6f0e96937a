"""SKIP RECORD skips one record: the next one of its split and no other."""

from __future__ import annotations

import pytest

from rw_sql.plan.result.preview_text import render_preview
from tests.plan.canned import CannedWorld, moved_world, refused


@pytest.fixture
def paused() -> CannedWorld:
    """Source ``s`` has the position 40 of [10, 50) in its first split, and 50, the end, in its second one."""
    world = moved_world()
    world.run("PAUSE SOURCE s")
    return world


def test_the_next_record_is_passed_by(paused: CannedWorld) -> None:
    plan = paused.run("SKIP RECORD AT '0' 40 ON SOURCE s REASON 'poison'")
    assert paused.states("s") == {"old:0": 41, "old:1": 50}
    assert plan.is_unsafe
    assert plan.operation is not None
    assert (plan.operation.kind, plan.operation.reason) == ("SKIP RECORD", "poison")
    assert plan.preview is not None
    assert "GAP 1" in render_preview(plan.preview)
    assert [(row.change, row.detail) for row in plan.changes] == [
        ("SKIPPED", "old:0: record 40 will not be read; 41 is next")
    ]
    paused.run(f"UNDO OPERATION {paused.operations[0].epoch}")
    assert paused.states("s") == {"old:0": 40, "old:1": 50}


@pytest.mark.parametrize(
    ("record", "message", "hint"),
    [
        ("'0' 39", "was already read; the next record is 40", "SHOW SOURCE SPLITS"),
        ("'0' 42", "is not the next one: 2 unread records come before it, from 40 on", "VALUES ('old:0' = 43) skips"),
        ("'0' 50", "has no record 50: it ends at 50", "the next record to read is 40"),
        (
            "'1' 50",
            "has no record 50: it ends at 50",
            "the reader has read every record of the split, so none is left to skip",
        ),
    ],
)
def test_any_other_record_is_refused(paused: CannedWorld, record: str, message: str, hint: str) -> None:
    error = refused(paused, f"SKIP RECORD AT {record} ON SOURCE s")
    assert error.code == "RW211"
    assert message in error.message
    assert hint in (error.hint or "")
    assert "ALLOW" not in (error.hint or "")  # a hint consents to nothing


def test_where_offsets_may_have_no_record_the_skip_says_so(paused: CannedWorld) -> None:
    paused.sparse["old"] = "a compacted topic"
    error = refused(paused, "SKIP RECORD AT '0' 42 ON SOURCE s")
    assert "at most 2 unread records come before it" in error.message
    plan = paused.run("SKIP RECORD AT '0' 40 ON SOURCE s")
    assert plan.preview is not None
    (notice,) = plan.preview.notices
    assert notice.startswith("some offsets of old:0 may have no record (a compacted topic): if 40 has none, nothing is")
    assert [(row.change, row.detail) for row in plan.changes] == [
        ("SKIPPED", "old:0: the record at 40 will not be read; 41 is next"),
        ("NOTICE", notice),
    ]


def test_a_running_source_is_refused() -> None:
    assert refused(moved_world(), "SKIP RECORD AT '0' 40 ON SOURCE s").code == "RW305"


def test_a_split_that_is_none_of_its_is_refused(paused: CannedWorld) -> None:
    assert refused(paused, "SKIP RECORD AT '7' 40 ON SOURCE s").code == "RW209"


def test_where_the_upstream_does_not_answer_nobody_knows_the_record(paused: CannedWorld) -> None:
    paused.silent.add("127.0.0.1:9092")
    assert refused(paused, "SKIP RECORD AT '0' 40 ON SOURCE s").code == "RW401"
