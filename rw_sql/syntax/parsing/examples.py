"""The example lines of the grammar, for the hint of an error: the one that begins as the statement does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rw_sql.assets import list_assets, read_asset
from rw_sql.syntax.lexing.tokens import PUNCTUATION, WORD, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token

_MARK = "// example: "
_PARTS = "parts.lark"
_BESIDE = frozenset({"SHOW timezone", "REFRESH SCHEMA"})
"""Examples of rules that are no statement, or not one to begin with."""

_LONGEST = 130


@cache
def _examples() -> tuple[tuple[str, tuple[Token, ...]], ...]:
    found = []
    for name in list_assets("grammar", ".lark"):
        if name == _PARTS:
            continue
        for line in read_asset("grammar", name).splitlines():
            if line.startswith(_MARK):
                text = line.removeprefix(_MARK)
                if text in _BESIDE:
                    continue
                found.append((text, tuple(token for token in scan(text) if token.text)))
    return tuple(found)


def example_like(before: Sequence[Token]) -> str | None:
    """The shortest example of the grammar that has the same keywords in front; None where none fits or it is long."""
    statement = [token for token in before if not (token.kind == WORD and token.upper == "EXPLAIN")]
    if not statement:
        return None
    best: tuple[int, int, str] | None = None
    for text, tokens in _examples():
        if not _is_statement(tokens):
            continue
        score = _alike(statement, tokens)
        if score and len(text) <= _LONGEST and (best is None or (-score, len(text)) < best[:2]):
            best = (-score, len(text), text)
    return best[2] if best is not None and -best[0] == len(statement) else None


def _is_statement(tokens: Sequence[Token]) -> bool:
    return bool(tokens) and tokens[0].kind == WORD and tokens[0].text.isupper()


def _alike(statement: Sequence[Token], example: Sequence[Token]) -> int:
    """How many tokens of a statement an example begins with; any name, text or number stands for any other."""
    count = 0
    for mine, other in zip(statement, example, strict=False):
        is_fixed = other.kind == PUNCTUATION or (other.kind == WORD and other.text.isupper())
        if (mine.upper != other.upper) if is_fixed else mine.kind == PUNCTUATION:
            break
        count += 1
    return count
