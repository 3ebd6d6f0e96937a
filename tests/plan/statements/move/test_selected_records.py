"""Moves that select other records of the same splits: the messages of other subjects of a NATS stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.model.offset_ranges import ReadIncarnation
from tests.plan import canned_inspector
from tests.plan.canned import CannedWorld, refused
from tests.plan.statements.move.test_block import commit
from tests.plan.statements.move.test_undo import undo

if TYPE_CHECKING:
    from rw_sql.plan.result.plan import Plan, SplitPreview

ELSE = "ALTER SOURCE s UNSAFE SET (subject = 'orders.us')"
OTHERS = "UNKNOWN (other records)"
FROM_THE_START = "INJECT SOURCE OFFSETS s TO EARLIEST ALLOW DUPLICATES"


@dataclass
class Stream:
    """A source of the subject ``orders.eu``, and the end of its stream."""

    world: CannedWorld
    end: int = 1000

    def look(self, *_: Any, **__: Any) -> Upstream:
        split = UpstreamSplit(split="ORDERS", start=1, end=self.end, incarnation="2026")
        return Upstream(splits={"ORDERS": split})

    def read_to(self, end: int) -> None:
        self.end = end
        self.world.moved["ORDERS"] = end
        self.world.read.add("ORDERS")
        self.world.lives["ORDERS"] = (ReadIncarnation(spans=((1, end),), reached=end, incarnation="2026"),)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream(CannedWorld())
    for name in ("look", "look_again"):
        monkeypatch.setattr(canned_inspector.CannedUpstreams, name, made.look)
    monkeypatch.setattr(
        canned_inspector.CannedUpstreams, "sparse_topics", lambda *_: {"ORDERS": "messages of other subjects"}
    )
    made.world.run(
        "ALTER SYSTEM SET enable_unsafe_ops = true",
        "CREATE SOURCE s (id INT) WITH (connector = 'nats', server_url = 'nats://h:4222', stream = 'ORDERS', "
        "subject = 'orders.eu', connect_mode = 'plain') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    made.read_to(1000)
    return made


def row_of(plan: Plan) -> SplitPreview:
    assert plan.preview is not None
    (row,) = plan.preview.splits
    return row


def test_other_subjects_have_messages_before_the_position_that_are_not_read(stream: Stream) -> None:
    plan = stream.world.run(ELSE)
    assert (row_of(plan).old, row_of(plan).new, row_of(plan).verdict) == (1000, 1000, OTHERS)
    assert plan.preview is not None
    assert any(FROM_THE_START in notice for notice in plan.preview.notices)
    assert any(FROM_THE_START in row.detail for row in plan.changes)


@pytest.mark.parametrize("subject", [" orders.eu", "orders.eu,orders.eu"])
def test_the_same_subjects_in_another_spelling_select_the_same_messages(stream: Stream, subject: str) -> None:
    plan = stream.world.run(f"ALTER SOURCE s UNSAFE SET (subject = '{subject}')")
    assert row_of(plan).verdict == "NONE"


def test_undo_of_other_subjects_gives_back_the_position_and_counts_what_is_repeated(stream: Stream) -> None:
    stream.world.run(ELSE)
    stream.read_to(2000)
    plan = stream.world.run(f"{undo(stream.world)} ALLOW DUPLICATES")
    assert stream.world.states("s") == {"ORDERS": 1000}
    assert row_of(plan).verdict == "DUPLICATES at most 1000 (messages of other subjects)"
    assert row_of(plan).gaps == 0
    redone = stream.world.run(undo(stream.world))
    assert stream.world.states("s") == {"ORDERS": 2000}
    assert row_of(redone).verdict != OTHERS


def test_undo_before_anything_was_read_has_no_effect_on_messages(stream: Stream) -> None:
    stream.world.run("PAUSE SOURCE s", ELSE)
    assert row_of(stream.world.run(undo(stream.world))).verdict == "NONE"


def test_a_block_that_reads_the_other_subjects_from_the_start_skips_nothing(stream: Stream) -> None:
    block = ("PAUSE SOURCE s", ELSE, FROM_THE_START, "RESUME SOURCE s")
    plan = commit(stream.world, *block)
    assert row_of(plan).verdict == "DUPLICATES at most 999 (messages of other subjects)"
    elsewhere = commit(stream.world, "PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (subject = 'a')", "RESUME SOURCE s")
    assert elsewhere.preview is not None
    assert row_of(elsewhere).verdict.startswith("DUPLICATES")  # The position is the stream's first message.


def test_a_later_injection_is_undone_first(stream: Stream) -> None:
    stream.world.run("PAUSE SOURCE s", ELSE)
    moved = undo(stream.world)
    stream.world.run("INJECT SOURCE OFFSETS s VALUES ('0' = 500) ALLOW DUPLICATES")
    error = refused(stream.world, moved)
    assert "later operations depend on it" in error.message
