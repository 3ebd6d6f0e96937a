"""Asking the operator whether an unsafe statement may go ahead: who answers, and what is shown first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from rw_sql.session.attach import Question

Answer = Callable[["Question"], bool]
"""What a session asks before an unsafe statement; the yes holds for that one request."""


def choose_answer(console: Console, *, is_confirmed: bool, tokens: frozenset[str]) -> Answer | None:
    """Who answers for a script: ``--yes``, tokens, the person at the terminal, or nobody (None).

    Whatever the answer comes from, the preview is printed before it. ``--yes`` was said before anybody saw it: what it
    predicts to be lost or repeated must then be named by the statement's ALLOW.
    """
    can_ask = console.is_terminal and sys.stdin.isatty()
    if not (is_confirmed or tokens or can_ask):
        return None

    def answer(question: Question) -> bool:
        if is_confirmed and question.takes_yes_beforehand:
            show_preview(console, question)
            console.print(Text("Confirmed by --yes.", style="dim"))
            return True
        if question.token in tokens:
            show_preview(console, question)
            console.print(Text(f"Confirmed by --confirm {question.token}.", style="dim"))
            return True
        return can_ask and ask_at_terminal(console, question)

    return answer


def ask_at_terminal(console: Console, question: Question) -> bool:
    """Shows the preview and waits for a yes; anything else, the end of input included, is a no."""
    show_preview(console, question)
    try:
        reply = console.input(Text("Go ahead? Type yes: ", style="bold"))
    except EOFError:
        return False
    return reply.strip().lower() in {"y", "yes"}


def show_preview(console: Console, question: Question) -> None:
    """Prints what the statement would do."""
    console.print(Text(question.preview))
