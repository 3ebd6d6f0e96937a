"""The hook of prompts and notebooks: one statement at a time, of the main thread, and hidden during a question."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.runtime.observe.statement_progress import StatementProgress
from rw_sql.session import shown_status
from rw_sql.session.shown_status import show_statements, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.plan.result.confirmation import Question


class Recorded:
    """A display that records what happens to it."""

    def __init__(self, describe: Callable[[], StatementProgress]) -> None:
        self.describe = describe
        self.events: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        self.events.append(f"shown: {self.describe().what}")
        yield
        self.events.append("gone")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        self.events.append("hidden")
        yield
        self.events.append("again")


class Session:
    """A session whose questions are answered with yes."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.ask: Callable[[Question], bool] | None = self.answer

    def answer(self, question: object) -> bool:
        self.asked.append(question)
        return True


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(shown_status._Installed, "display", None)
    made: list[Recorded] = []

    def make(describe: Callable[[], StatementProgress]) -> Recorded:
        made.append(Recorded(describe))
        return made[0]

    show_statements(make)
    return made[0]


def describe() -> StatementProgress:
    return StatementProgress(what="planning")


def test_a_statement_inside_of_another_adds_nothing(display: Recorded) -> None:
    session = Session()
    with shown(session, describe), shown(session, describe):
        pass
    with shown(session, describe):
        pass
    assert display.events == ["shown: planning", "gone"] * 2
    assert display.describe().what == ""


def test_a_question_hides_it(display: Recorded) -> None:
    session = Session()
    question: Any = object()
    with shown(session, describe):
        assert session.ask is not None
        assert session.ask(question)
    assert display.events == ["shown: planning", "hidden", "again", "gone"]
    assert session.asked == [question]
    assert cast("Any", session.ask) == session.answer


def test_a_statement_that_fails_ends_it(display: Recorded) -> None:
    session = Session()
    with pytest.raises(ValueError, match="refused"), shown(session, describe):
        raise ValueError("refused")
    with shown(session, describe):
        pass
    assert display.events.count("shown: planning") == 2


def test_a_thread_beside_the_main_one_shows_nothing(display: Recorded) -> None:
    def run() -> None:
        with shown(Session(), describe):
            pass

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert display.events == []
