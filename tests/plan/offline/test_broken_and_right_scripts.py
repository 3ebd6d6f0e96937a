"""Scripts of several statements: every error of a broken script is found at its place, and none in a correct one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.plan.offline.script import ScriptChecker

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parents[2] / "fixtures" / "check"
BROKEN = sorted((FOLDER / "broken").glob("*.sql"))
RIGHT = sorted((FOLDER / "right").glob("*.sql"))


def found(path: Path) -> list[str]:
    """The findings in a file: one line for each error, with its hint below."""
    checker, text = ScriptChecker(), path.read_text(encoding="utf-8")
    checker.announce(text, path.name)
    lines = []
    for checked in checker.check(text, path.name):
        for error in checked.errors:
            lines.append(f"{error.line}:{error.column} {error.code} {error.message}")
            lines += [f"  {error.hint}"] if error.hint else []
    return lines


def test_there_are_enough_of_each() -> None:
    assert len(BROKEN) >= 120
    assert len(RIGHT) >= 120


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_faults_are_found_where_they_are(path: Path, recorded: Callable[[Path, str], None]) -> None:
    lines = found(path)
    assert lines, "nothing is found"
    recorded(path.with_suffix(".txt"), "\n".join(lines) + "\n")


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_right_scripts_have_no_finding(path: Path) -> None:
    assert found(path) == []
