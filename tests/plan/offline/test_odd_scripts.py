"""Whatever a script contains, the check ends with findings and not with an internal error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax import split_script

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").rglob("*.sql"))
STATEMENTS = [part.text for path in FIXTURES for part in split_script(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("seed", range(8))
def test_statements_of_all_fixtures_in_any_order_and_cut(seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(6):
        text = ";\n".join(chosen.sample(STATEMENTS, 12))
        at = chosen.randrange(len(text))
        text = text[:at] + text[at + chosen.randrange(4) :]
        for checked in ScriptChecker().check(text, "x"):
            assert 0 <= checked.start <= checked.end <= len(text)
            for error in checked.errors:
                assert error.hint
                assert error.span is not None
                assert error.line == text.count("\n", 0, error.span.start) + 1
