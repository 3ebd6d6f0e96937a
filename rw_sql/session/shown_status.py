"""A hook through which an interactive prompt or a notebook shows the status of a long-running statement.

This package itself prints nothing. Instead, the front end installs a display. The commands of ``rw-sql`` install no
display, because they have their own status line.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.plan.result.confirmation import Question
    from rw_sql.runtime.observe.statement_progress import StatementProgress


class StatusDisplay(Protocol):
    """A display that shows the status of one statement at a time."""

    def running(self) -> AbstractContextManager[None]:
        """A context manager that shows the status as soon as the ``with`` block has run longer than the display's
        delay."""
        ...

    def hidden(self) -> AbstractContextManager[None]:
        """A context manager that hides the status while the ``with`` block runs."""
        ...


class Asks(Protocol):
    """A session whose callback ``ask`` confirms unsafe statements; None if nobody can confirm them."""

    ask: Callable[[Question], bool] | None


class _Installed:
    """The display that is installed in this process, and the statement whose status it shows."""

    display: StatusDisplay | None = None
    describe: Callable[[], StatementProgress] | None = None


def show_statements(make: Callable[[Callable[[], StatementProgress]], StatusDisplay]) -> None:
    """Installs the display for the statements of all sessions in this process.

    ``make`` creates the display. Its argument is a function that returns the progress of the running statement.
    """

    def describe() -> StatementProgress:
        from rw_sql.runtime.observe.statement_progress import StatementProgress

        found = _Installed.describe
        return StatementProgress(what="") if found is None else found()

    _Installed.display = make(describe)


@contextmanager
def shown(session: Asks, describe: Callable[[], StatementProgress]) -> Iterator[None]:
    """A context manager that shows the status of the statement that the ``with`` block runs.

    The context manager has no effect outside the main thread, or while the status of another statement is shown.
    """
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
        if ask is not None:
            session.ask = ask
        _Installed.describe = None


def _hiding(display: StatusDisplay, ask: Callable[[Question], bool]) -> Callable[[Question], bool]:
    def answer(question: Question) -> bool:
        with display.hidden():
            return ask(question)

    return answer
