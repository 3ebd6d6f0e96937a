"""The hook by which an interactive prompt or a notebook shows the status of a statement that takes long.

This package prints nothing: the front end installs what shows it. Commands, whose statements have a status line of
their own, install nothing.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.plan.result.confirmation import Question
    from rw_sql.runtime.observe.waiting import StatementProgress


class StatusDisplay(Protocol):
    """What shows the status of one statement at a time."""

    def running(self) -> AbstractContextManager[None]:
        """Shows the status while the block runs, once it has run for a while."""
        ...

    def hidden(self) -> AbstractContextManager[None]:
        """Hides the status while the block runs."""
        ...


class Asks(Protocol):
    """A session with the function that confirms its unsafe statements."""

    ask: Callable[[Question], bool] | None


class _Installed:
    """The display of this process, and the statement that it shows."""

    display: StatusDisplay | None = None
    describe: Callable[[], StatementProgress] | None = None


def show_statements(make: Callable[[Callable[[], StatementProgress]], StatusDisplay]) -> None:
    """Shows the statements of all sessions of this process. ``make`` gets the function that describes the running one,
    and returns the display."""

    def describe() -> StatementProgress:
        from rw_sql.runtime.observe.waiting import StatementProgress

        found = _Installed.describe
        return StatementProgress(what="") if found is None else found()

    _Installed.display = make(describe)


@contextmanager
def shown(session: Asks, describe: Callable[[], StatementProgress]) -> Iterator[None]:
    """Shows a statement of the main thread while the block runs it; a statement inside of another adds nothing."""
    display = _Installed.display
    is_main = threading.current_thread() is threading.main_thread()
    if display is None or _Installed.describe is not None or not is_main:
        yield
        return
    ask = session.ask
    _Installed.describe = describe
    if ask is not None:
        session.ask = _hiding(display, ask)
    try:
        with display.running():
            yield
    finally:
        session.ask = ask
        _Installed.describe = None


def _hiding(display: StatusDisplay, ask: Callable[[Question], bool]) -> Callable[[Question], bool]:
    def answer(question: Question) -> bool:
        with display.hidden():
            return ask(question)

    return answer
