"""Makes damaged statements. Each seed draws faults that typing, a merge or a transfer can cause in SQL."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from rw_sql.errors import SqlError
from rw_sql.syntax import could_be_ours, parse, render, split_script
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.tokens import Token, scan
from rw_sql.syntax.routing import route

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "syntax"
SLOWEST_SECONDS = 0.1
"""The maximum seconds for a text of less than 10 kB."""

_SIGNS = [*"()[]{}<>,.;:=+-*/%!?|&^~@#$\\\"'`\0\n\t ", "--", "/*", "*/", "$$", "->", "::", "''", "'", '"']


def texts() -> list[str]:
    """All statements of the fixtures, valid and invalid."""
    found: list[str] = []
    for path in sorted(FIXTURES.glob("*.sql")):
        script = path.read_text(encoding="utf-8")
        found += [script[s.span.start : s.span.end] for s in parse(script)]
    for path in sorted((FIXTURES / "errors").glob("*.sql")):
        found += [block for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]
    return found


class Mutator:
    """Draws damaged texts. The same seed draws the same texts."""

    def __init__(self, seed: int, sources: list[str]) -> None:
        self._random = random.Random(seed)
        self._sources = sources
        self._pool = sorted({token.text for text in sources for token in _tokens(text)})

    def draw(self) -> str:
        """The next text: a fixture with one to four faults."""
        text = self._random.choice(self._sources)
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            text = self._damage(text)
        return text

    def _damage(self, text: str) -> str:
        pick = self._random
        tokens = _tokens(text)
        ways = [self._insert_characters, self._cut, self._repeat, self._splice]
        if len(tokens) > 1:
            ways += [self._token] * 8
        return pick.choice(ways)(text) if pick.random() < 0.97 else self._nest(text)

    def _token(self, text: str) -> str:
        pick = self._random
        tokens = _tokens(text)
        at = pick.randrange(len(tokens))
        token = tokens[at]
        before, after = text[: token.start], text[token.end :]
        match pick.randrange(6):
            case 0:
                return before + " " + after
            case 1:
                return f"{before}{token.text} {token.text}{after}"
            case 2:
                return before + pick.choice(self._pool) + after
            case 3:
                return f"{before}{token.text} {pick.choice(self._pool)} {after}"
            case 4:
                return before + _swapcase(token.text) + after
            case _:
                other = tokens[pick.randrange(len(tokens))]
                return before + other.text + after

    def _insert_characters(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        kind = self._random.randrange(3)
        inserted = self._random.choice(_SIGNS) if kind else chr(self._any_character())
        end = at + self._random.randrange(2)
        return text[:at] + inserted + text[end:]

    def _any_character(self) -> int:
        plane = self._random.randrange(17)
        point = plane * 0x10000 + self._random.randrange(0x10000)
        return point if not 0xD800 <= point < 0xE000 else 0xFFFD

    def _cut(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        return text[:at] if self._random.random() < 0.7 else text[at:]

    def _repeat(self, text: str) -> str:
        start = self._random.randrange(len(text) + 1)
        chunk = text[start : start + self._random.randrange(1, 40)]
        return text[:start] + chunk * self._random.choice((2, 3, 30)) + text[start + len(chunk) :]

    def _splice(self, text: str) -> str:
        other = self._random.choice(self._sources)
        return text[: self._random.randrange(len(text) + 1)] + other[self._random.randrange(len(other) + 1) :]

    def _nest(self, text: str) -> str:
        depth = self._random.choice((5, 50, 500))
        opening, closing = self._random.choice(
            (("(", ")"), ("[", "]"), ("CASE WHEN ", " THEN 1 END"), ("(SELECT ", ")"))
        )
        at = self._random.randrange(len(text) + 1)
        return text[:at] + opening * depth + "1" + closing * self._random.choice((depth, depth - 1)) + text[at:]


def _swapcase(text: str) -> str:
    return text.swapcase()


def _tokens(text: str) -> list[Token]:
    try:
        return scan(text)[:-1]
    except SqlError:
        return []


class _Nothing:
    def has_object(self, name: ast.Name) -> bool:
        return False

    def has_parameter(self, name: str) -> bool:
        return False


def judge(text: str) -> str:
    """Parses a text. Returns ``parsed`` or the code of the error. Raises AssertionError if the parser takes too long,
    if its error has no position, or if the canonical text has another meaning than the text."""
    # The thread's CPU time is measured, because the parser never waits, and the load of other processes must not count.
    started = time.thread_time()
    try:
        statements = parse(text)
        outcome = "parsed"
    except SqlError as error:
        statements = ()
        outcome = error.code
        _require(error.line is not None and bool(error.render()), f"an error without a position: {text!r}")
    took = time.thread_time() - started
    if len(text) < 10_000 and took > SLOWEST_SECONDS:
        # A garbage collection may have caused the delay, so the text is parsed again.
        took = min(_timed(text) for _ in range(3))
        assert took <= SLOWEST_SECONDS, f"{took:.3f} s for {len(text)} characters: {text!r}"
    shown = ";\n".join(render(statement) for statement in statements)
    assert parse(shown) == statements, f"the canonical text means something else: {text!r} → {shown!r}"
    for part in split_script(text):
        if could_be_ours(part.text):
            try:
                route(part.text, _Nothing())
            except SqlError as error:
                _require(error.span is not None, part.text)
    return outcome


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def _timed(text: str) -> float:
    started = time.thread_time()
    with contextlib.suppress(SqlError):
        parse(text)
    return time.thread_time() - started
