"""Asks the operator to confirm an unsafe statement, after showing its preview."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from rw_sql.session.attach import Question

Answer = Callable[["Question"], bool]
"""The type of a function that decides whether an unsafe statement is confirmed. The result True confirms only this
statement."""


def choose_answer(console: Console, *, is_confirmed: bool, tokens: frozenset[str]) -> Answer | None:
    """Returns the function that decides whether an unsafe statement of a script is run. The decision is based on
    ``--yes`` (``is_confirmed``), on the ``tokens`` of ``--confirm``, or on the user's answer at the terminal. Returns
    None if none of these three ways is available.

    The function prints the preview before it confirms a statement. The user gives ``--yes`` before the preview is
    known. Therefore, ``--yes`` suffices only if the statement's ALLOW names the predicted gaps and duplicates.
    """
    can_ask = console.is_terminal and sys.stdin.isatty()
    if not (is_confirmed or tokens or can_ask):
        return None

    def answer(question: Question) -> bool:
        if is_confirmed and question.takes_yes_beforehand:
            show_preview(console, question)
            console.print(Text("Confirmed by --yes.", style="dim"))
            return True
        if given := sorted(question.tokens & tokens):
            show_preview(console, question)
            console.print(Text(f"Confirmed by --confirm {given[0]}.", style="dim"))
            return True
        return can_ask and ask_at_terminal(console, question)

    return answer


def first_unconfirmed(
    console: Console, questions: Iterable[Question], *, is_confirmed: bool, tokens: frozenset[str]
) -> Question | None:
    """Returns the first question that the function from :func:`choose_answer` could not confirm: ``--yes`` does not
    suffice, no token applies, and no terminal is available. Returns None if there is no such question.

    Each token confirms at most one question. If statements that run before a question's statement will change its token
    (``is_final`` is False), any token counts, because the final token is not known yet.
    """
    if console.is_terminal and sys.stdin.isatty():
        return None
    left = set(tokens)
    for question in questions:
        if is_confirmed and question.takes_yes_beforehand:
            continue
        given = (question.tokens & left) or (set() if question.is_final else left)
        if not given:
            return question
        left.discard(min(given))
    return None


def ask_at_terminal(console: Console, question: Question) -> bool:
    """Shows the preview and waits for an answer. Returns True for ``yes`` or ``y`` in any case of letters. Any other
    answer, including the end of input, counts as no."""
    show_preview(console, question)
    try:
        reply = console.input(Text("Go ahead? Type yes: ", style="bold"))
    except EOFError:
        return False
    return reply.strip().lower() in {"y", "yes"}


def show_preview(console: Console, question: Question) -> None:
    """Prints the predicted effect of the statement."""
    console.print(Text(question.preview))
