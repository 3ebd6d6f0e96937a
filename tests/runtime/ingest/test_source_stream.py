"""A reader's stream opened in advance: at the expected positions, at others, and with a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import current_thread
from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.runtime.ingest.source_stream import SourceStream
from rw_sql.syntax import parse_statement

STATEMENT = parse_statement("CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 't') FORMAT PLAIN ENCODE JSON")
OPTIONS = {"topic": "t", "properties.bootstrap.server": "a:1"}


@dataclass
class _Kafka:
    """Kafka's connector, whose streams are the arguments with which they were opened."""

    fails: bool = False
    opened: list[tuple[dict[str, int], bool]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(KafkaConnector(), name)

    def fetcher(self, options: dict[str, str], *, with_headers: bool = False) -> Any:
        return KafkaConnector().fetcher(options, with_headers=with_headers)

    def read_stream(self, spark: Any, options: Any, states: dict[str, SplitState], **_: Any) -> Any:
        at = {split: state.offset for split, state in states.items()}
        self.opened.append((at, current_thread().name == "rw_sql-opening"))
        if self.fails:
            raise ValueError("no such class")
        return at


def opening_of(kind: _Kafka, session: str | None = None) -> Any:
    """The real class, but its stream and session are the requested arguments instead of Spark's objects."""
    sessions = SimpleNamespace(
        new=lambda packages: "new",
        again=lambda before, packages: f"{before} again",
        load=lambda packages: None,
        release_if_alive=lambda session: None,
    )
    context: Any = SimpleNamespace(sessions=sessions)
    statement: Any = STATEMENT
    return SourceStream(context, statement, kind, OPTIONS, max_records=1, session=session)  # type: ignore[arg-type]


def states(offset: int) -> dict[str, SplitState]:
    return {"t:0": SplitState(split="t:0", offset=offset)}


def test_what_was_begun_is_taken_where_it_begins_at_the_same_positions() -> None:
    kind = _Kafka()
    opening = opening_of(kind)
    opening.begin(states(7))
    assert opening.stream(states(7)) == {"t:0": 7}
    assert kind.opened == [({"t:0": 7}, True)]


def test_another_is_opened_where_an_earlier_run_has_read_on_meanwhile() -> None:
    kind = _Kafka()
    opening = opening_of(kind)
    opening.begin(states(7))
    assert opening.stream(states(9)) == {"t:0": 9}
    opening.end()
    assert sorted(kind.opened, key=str) == sorted([({"t:0": 7}, True), ({"t:0": 9}, False)], key=str)


def test_without_known_positions_nothing_is_started() -> None:
    kind = _Kafka()
    opening = opening_of(kind)
    opening.begin({})
    assert opening.stream(states(0)) == {"t:0": 0}
    assert kind.opened == [({"t:0": 0}, False)]


def test_the_reason_why_it_cannot_be_opened_is_raised_for_the_caller() -> None:
    kind = _Kafka(fails=True)
    opening = opening_of(kind)
    opening.begin(states(7))
    with pytest.raises(ValueError, match="no such class"):
        opening.stream(states(7))
    opening.abandon()
    assert opening.fetcher is not None
    assert opening.fetcher.fetch({"t:0": (0, 1)}) is None


@pytest.mark.parametrize(("before", "now"), [(None, "new"), ("last", "last again")])
def test_the_session_of_the_last_run_is_used_again(before: str | None, now: str) -> None:
    opening = opening_of(_Kafka(), before)
    opening.stream(states(0))
    assert opening.session == now


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("before", "released"), [(None, ["new"]), ("last", [])])
def test_an_abandoned_stream_releases_its_own_session_but_not_that_of_the_last_run(
    before: str | None, released: list[str], *, fails: bool
) -> None:
    found: list[str] = []
    opening = opening_of(_Kafka(fails=fails), before)
    opening.context.sessions.again = lambda session, packages: session
    opening.context.sessions.release_if_alive = found.append
    opening.begin(states(7))
    opening.abandon()
    assert (found, opening.session) == (released, before)
    opening.abandon()
    assert found == released


def test_a_fetcher_that_cannot_connect_says_nothing() -> None:
    fetcher = _Kafka().fetcher(OPTIONS)
    fetcher.connect(())
    fetcher.connect(("t:0",))
    fetcher.close()
    fetcher.connect(("t:0",))
    assert fetcher.fetch({"t:0": (0, 1)}) is None
