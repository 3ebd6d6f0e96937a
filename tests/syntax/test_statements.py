"""Every fixture statement parses, has the recorded canonical text, and that text parses to an equal statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.syntax import parse_script, render
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.tokens import WORD, Token
from rw_sql.syntax.parsing.parser import Parser
from rw_sql.syntax.rendering.render import RENDERERS
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPTS = sorted((FIXTURES / "syntax").glob("*.sql"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_canonical_text(script: Path, recorded: Callable[[Path, str], None]) -> None:
    statements = parse_script(script.read_text(encoding="utf-8"), str(script.name))
    shown = "\n".join(f"-- {type(statement).__name__}\n{render(statement)};\n" for statement in statements)
    recorded(script.with_suffix(".txt"), shown)
    again = parse_script(shown)
    assert again == statements
    assert [render(statement) for statement in again] == [render(statement) for statement in statements]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_keywords_of_canonical_text_are_upper_case(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that the grammar uses as keywords, and not as a name, an option's key or a value (true, null, …)."""
    real = Parser.terminal
    written: list[str] = []

    def terminal(self: Parser) -> tuple[str, Token]:
        at = self.at
        name, token = real(self)
        if token.kind == WORD and name not in ("NAME", "WORD"):
            written.extend(each.text for each in self.tokens[at : self.at])
        return name, token

    statements = parse_script(script.read_text(encoding="utf-8"))
    monkeypatch.setattr(Parser, "terminal", terminal)
    for statement in statements:
        parse_script(render(statement))
    values = {"true", "false", "null", "default", "on"}
    assert {word for word in written if word != word.upper()} <= values
    assert written


def test_there_are_enough() -> None:
    count = sum(len(parse_script(script.read_text(encoding="utf-8"))) for script in SCRIPTS)
    errors = sum(
        len(path.read_text(encoding="utf-8").split("\n\n")) for path in (FIXTURES / "syntax" / "errors").glob("*.sql")
    )
    assert count >= 400
    assert errors >= 200


def test_every_statement_has_a_fixture() -> None:
    met = {type(s) for script in SCRIPTS for s in parse_script(script.read_text(encoding="utf-8"))}
    # A block is no text: a session collects it, statement by statement.
    assert met == set(RENDERERS) - {ast.UnsafeBlock}


def test_every_statement_can_be_rendered() -> None:
    known = {c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, ast.Statement)} - {ast.Statement}
    assert known == set(RENDERERS)
