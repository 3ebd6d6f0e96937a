"""When a source asks its upstream whether the log that it has read lost records, and what it makes of the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import SplitState, UpstreamSplit
from rw_sql.runtime.jobs.log_terms import LogTerms
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SPLIT = "orders:0"


@dataclass
class Logs:
    """An upstream with one log, by Kafka's rules: each term has the offset of its first record."""

    end: int = 0
    begins: dict[int, int] = field(default_factory=lambda: {0: 0})
    asked: list[int] = field(default_factory=list)
    is_silent: bool = False

    def write(self, count: int) -> None:
        self.end += count

    def elect(self, *, cut: int | None = None) -> None:
        """Another leader, whose log ends at ``cut``."""
        self.end = self.end if cut is None else cut
        self.begins = {term: at for term, at in self.begins.items() if at < self.end or term == 0}
        self.begins[max(self.begins) + 1] = self.end

    def terms(self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = 8.0) -> Mapping[str, int]:
        if self.is_silent:
            raise ConnectionError("no answer")
        return dict.fromkeys(splits, max(self.begins))

    def diverged(
        self, options: Mapping[str, str], states: Mapping[str, SplitState], *, timeout: float = 8.0
    ) -> Mapping[str, int]:
        found = {}
        for split, state in states.items():
            self.asked.append(state.offset)
            later = [at for term, at in self.begins.items() if term > (state.term or 0)]
            ends = min(later, default=self.end)
            if ends < state.offset:
                found[split] = ends
        return found

    def opened(self, offset: int, term: int | None) -> LogTerms:
        seen = UpstreamSplit(split=SPLIT, start=0, end=self.end, term=max(self.begins))
        state = SplitState(split=SPLIT, offset=offset, term=term)
        terms = LogTerms.open("s", cast("Any", self), {}, {SPLIT: state}, {SPLIT: seen})
        assert terms is not None
        return terms


def test_nothing_is_asked_while_the_leader_stays() -> None:
    logs = Logs(end=20)
    terms = logs.opened(20, 0)
    logs.write(5)
    assert terms.note_fetched({SPLIT: (20, 25)}, {SPLIT: 0}, {SPLIT: 25}) == {}
    terms.require_read({SPLIT: (25, 25)})
    assert (logs.asked, terms.known) == ([], {SPLIT: 0})


def test_another_leader_is_asked_once() -> None:
    logs = Logs(end=20)
    terms = logs.opened(20, 0)
    logs.elect()
    logs.write(5)
    terms.note_fetched({SPLIT: (20, 22)}, {SPLIT: 1}, {SPLIT: 22})
    terms.note_fetched({SPLIT: (22, 25)}, {SPLIT: 1}, {SPLIT: 25})
    assert (logs.asked, terms.known) == ([20], {SPLIT: 1})
    # Old records that are read again, after a move back, are no reason to ask.
    terms.note_fetched({SPLIT: (3, 5)}, {SPLIT: 0}, {SPLIT: 5})
    assert (logs.asked, terms.known) == ([20], {SPLIT: 1})


@pytest.mark.parametrize("when", ["at a start", "in a batch that is fetched", "in a batch that Spark reads"])
def test_a_log_that_lost_records_stalls_the_source(when: str) -> None:
    logs = Logs(end=20)
    terms = None if when == "at a start" else logs.opened(20, 0)
    logs.elect(cut=12)
    logs.write(30)

    def check() -> None:
        if terms is None:
            logs.opened(20, 0)
        elif when == "in a batch that is fetched":
            terms.note_fetched({SPLIT: (20, 42)}, {SPLIT: 1}, {SPLIT: 42})
        else:
            terms.require_read({SPLIT: (20, 42)})

    with pytest.raises(StalledError) as stalled:
        check()
    assert stalled.value.is_final
    assert stalled.value.reason == (
        "DIVERGED orders:0 at 20: the log was cut at 12 and has other records from there on; to read them: "
        "PAUSE SOURCE s; INJECT SOURCE OFFSETS s VALUES ('orders:0' = 12); RESUME SOURCE s; "
        "to skip those before the position, the second statement is INJECT SOURCE OFFSETS s VALUES ('orders:0' = 20)"
    )


def test_a_position_without_a_term_is_accepted_and_checked_from_then_on() -> None:
    logs = Logs(end=20)
    logs.elect(cut=12)
    logs.write(30)
    terms = logs.opened(20, None)
    assert (logs.asked, terms.known) == ([], {SPLIT: 1})
    logs.elect(cut=15)
    with pytest.raises(StalledError, match="DIVERGED"):
        terms.require_read({SPLIT: (20, 20)})


def test_a_batch_that_may_be_of_two_logs_is_read_again() -> None:
    logs = Logs(end=20)
    terms = logs.opened(10, 0)
    logs.elect(cut=12)
    logs.write(30)
    # Up to 12 it is the same log. What Spark read after that may have been read before or after the loss.
    with pytest.raises(StalledError, match="reading again") as stalled:
        terms.require_read({SPLIT: (10, 18)})
    assert not stalled.value.is_final
    terms = logs.opened(10, 0)
    terms.require_read({SPLIT: (10, 18)})
    assert terms.known == {SPLIT: 1}


def test_a_batch_below_the_change_of_the_leader_is_committed() -> None:
    logs = Logs(end=20)
    terms = logs.opened(10, 0)
    logs.elect()
    logs.write(30)
    terms.require_read({SPLIT: (10, 20)})
    assert (logs.asked, terms.known) == ([10, 20], {SPLIT: 1})


@pytest.mark.parametrize("records", [5, 0])
def test_a_marker_that_a_later_leader_wrote_belongs_to_the_term_of_that_leader(records: int) -> None:
    """A transaction is open while the leader changes, so that its marker is in the next term. A fetch returns only the
    records before the marker, if there are any."""
    logs = Logs(end=91 + records)
    start, end = 91, 92 + records
    terms = logs.opened(start, 0)
    logs.elect()
    logs.write(1)
    seen = {SPLIT: 0} if records else {}
    unproved = terms.note_fetched({SPLIT: (start, end)}, seen, dict.fromkeys(seen, end - 1))
    assert unproved == {SPLIT: (start, end)}
    # Which leader wrote the marker is not known: the batch is read again, and then the leader has not changed.
    with pytest.raises(StalledError, match="reading again") as stalled:
        terms.require_read(unproved)
    assert not stalled.value.is_final
    terms = logs.opened(start, 0)
    terms.require_read(terms.note_fetched({SPLIT: (start, end)}, seen, dict.fromkeys(seen, end - 1)))
    assert terms.known == {SPLIT: 1}
    logs.write(1)
    assert terms.note_fetched({SPLIT: (end, end + 1)}, {SPLIT: 1}, {SPLIT: end + 1}) == {}
    assert logs.opened(end + 1, terms.known[SPLIT]).known == {SPLIT: 1}


def test_a_record_without_a_term_does_not_prove_its_range() -> None:
    logs = Logs(end=20)
    terms = logs.opened(20, 0)
    logs.write(2)
    assert terms.note_fetched({SPLIT: (20, 22)}, {}, {SPLIT: 22}) == {SPLIT: (20, 22)}


def test_an_upstream_without_terms_is_not_asked_for_them() -> None:
    terms = LogTerms("s", cast("Any", Logs(end=20)), {}, {})
    assert terms.note_fetched({SPLIT: (20, 22)}, {}, {SPLIT: 21}) == {}


def test_an_upstream_that_does_not_answer_is_asked_again() -> None:
    logs = Logs(end=20, is_silent=True)
    with pytest.raises(StalledError, match="UNREACHABLE") as stalled:
        logs.opened(10, 0).require_read({SPLIT: (10, 20)})
    assert not stalled.value.is_final


def test_a_connector_without_terms_is_not_checked() -> None:
    assert LogTerms.open("s", cast("Any", object()), {}, {}, {}) is None
