"""How the options of a cell, and its user, confirm an unsafe statement."""

from __future__ import annotations

import io

import pytest

from rw_sql.magics.arguments import read_arguments
from rw_sql.magics.cell import choose_answer
from rw_sql.plan.result.confirmation import Question

SHOWN = Question(statement="RESET", preview="the preview", token="123456789abc", covering="abcdef123456")


@pytest.mark.parametrize(
    ("options", "question", "is_confirmed"),
    [
        ("--confirm 123456789abc", SHOWN, True),
        # The token of a preview with a gap also confirms the request after the reader has read the gap.
        ("--confirm abcdef123456", SHOWN, True),
        ("--confirm 000000000000", SHOWN, False),
        ("--yes", SHOWN, True),
        ("--yes", Question(statement="RESET", preview="", token="1", unallowed=("GAPS",)), False),
    ],
)
def test_options_confirm_a_request(options: str, question: Question, is_confirmed: bool) -> None:
    answer = choose_answer(read_arguments(options), can_ask=False)
    assert answer is not None
    assert answer(question) is is_confirmed


@pytest.mark.parametrize(("typed", "is_confirmed"), [("yes\n", True), (" Y \n", True), ("YES!\n", False), ("", False)])
def test_only_yes_confirms(typed: str, is_confirmed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    answer = choose_answer(read_arguments(""), can_ask=True)
    assert answer is not None
    assert answer(SHOWN) is is_confirmed


def test_nobody_can_be_asked() -> None:
    assert choose_answer(read_arguments(""), can_ask=False) is None
