"""Chooses examples from the grammar for hints. The hint of a syntax error shows a grammar example that begins with the
same words as the faulty statement."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from rw_sql.assets import list_assets, read_asset
from rw_sql.syntax.lexing.tokens import NUMBER, PUNCTUATION, STRING, WORD, scan
from rw_sql.syntax.lexing.written_names import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.syntax.lexing.tokens import Token

_MARK = "// example: "
_PARTS = "parts.lark"
_BESIDE = frozenset({
    "SHOW timezone", "REFRESH SCHEMA", "ALTER SYSTEM SET enable_unsafe_ops = true", "CONFIRM '3f9a52c0'",
})  # fmt: skip
"""Examples that hints never show: incomplete statements, rarely used statements, and statements that give consent to an
unsafe effect."""

_LONGEST = 130

_CONSENTS = frozenset({"ALLOW", "CASCADE", "REASON"})
_SWITCHES = frozenset({"VALIDATE", "REDISCOVER"})
"""The WITH options that give consent to an unsafe effect.

An example is cut before a WITH with such an option. A user who pastes the example therefore does not give consent.
"""


@cache
def _examples() -> tuple[tuple[str, tuple[Token, ...]], ...]:
    found = []
    for name in list_assets("grammar", ".lark"):
        if name == _PARTS:
            continue
        for line in read_asset("grammar", name).splitlines():
            if line.startswith(_MARK):
                text = line.removeprefix(_MARK)
                if text not in _BESIDE:
                    found.append(_without_consent(text))
    return tuple(found)


def _without_consent(text: str) -> tuple[str, tuple[Token, ...]]:
    """Returns an example and its tokens, both cut before the first clause that gives consent, such as ALLOW or
    CASCADE."""
    tokens = tuple(token for token in scan(text) if token.text)
    for at, token in enumerate(tokens):
        is_switched = token.upper == "WITH" and any(switch.upper in _SWITCHES for switch in tokens[at + 1 : at + 3])
        if at and (is_switched or token.upper in _CONSENTS):
            return text[: token.start].rstrip(), tokens[:at]
    return text, tokens


def example_like(before: Sequence[Token]) -> str | None:
    """Returns the shortest example of the grammar that begins with the statement's keywords, with the statement's names
    inserted.

    Returns None if no example fits, or if the example is too long for a hint.
    """
    statement = [token for token in before if not (token.kind == WORD and token.upper == "EXPLAIN")]
    if not statement:
        return None
    found = [
        _with_names(text, tokens, statement)
        for text, tokens in _examples()
        if _is_statement(tokens)
        and _alike(statement, tokens) == len(statement)
        and (len(tokens) > len(statement) or all(map(_is_fixed, tokens)))
    ]
    return min((text for text in found if len(text) <= _LONGEST), key=len, default=None)


def completed(before: Sequence[Token], keyword: str, token: Token) -> str | None:
    """Returns the statement up to ``token``, after inserting the keyword that is missing before ``token``. Returns None
    if no example of the grammar has, after the same words and the keyword, a value of the token's kind, such as a
    name."""
    if token.kind not in (WORD, NUMBER) or token.text.isupper():
        return None
    statement = [other for other in before if not (other.kind == WORD and other.upper == "EXPLAIN")]
    at = len(statement)
    for _, tokens in _examples():
        if (
            len(tokens) > at + 1
            and _alike(statement, tokens) == at
            and tokens[at].text == keyword
            and tokens[at + 1].kind == token.kind
            and not _is_fixed(tokens[at + 1])
        ):
            return f"{spelled(statement)} {keyword} {token.text}"
    return None


def _with_names(text: str, tokens: Sequence[Token], statement: Sequence[Token]) -> str:
    """Returns the example with the statement's names inserted. The statement's strings are not inserted, because they
    may be secrets."""
    is_acting = tokens[0].text in _ACTING
    if tokens[0].text not in _NAMING and len(tokens) > len(statement):
        start = tokens[len(statement)].start
        text = _without_names(text, start)
    if is_acting and len(tokens) > len(statement):
        start = tokens[len(statement)].start
        text = text[:start] + _without_values(text[start:])
    for mine, other in reversed(list(zip(statement, tokens, strict=False))):
        if other.kind == mine.kind == WORD and not _is_fixed(other) and not mine.text.isupper():
            text = text[: other.start] + mine.text + text[other.end :]
        elif is_acting and other.kind in (NUMBER, STRING):
            value = mine.text if other.kind == mine.kind == NUMBER else "…" if other.kind == NUMBER else "'…'"
            text = text[: other.start] + value + text[other.end :]
    return text


_ACTING = frozenset({"ALTER", "CANCEL", "INJECT", "RESET", "REWIND", "SKIP", "UNDO"})
"""The first words of statements that change existing objects. In hints, the examples of these statements have
placeholders instead of values, because a user could otherwise paste an example's value by mistake."""

_NAMING = frozenset({"CREATE", "REPLACE"})
"""The first words of statements that define objects. All other statements refer to existing objects, so their examples
have placeholders instead of names."""

_NAMED = re.compile(
    r"\b(?P<kind>CONNECTION|SCHEMA|SECRET|SINK|SOURCE|TABLE|VIEW)(?: IF EXISTS| SPLITS| OFFSETS| CONTINUITY)? "
    r"(?P<name>[a-z]\w*)"
)


def _without_names(text: str, start: int) -> str:
    """The example with placeholders such as ``a_source`` instead of the names that begin at ``start`` or later."""
    for found in reversed(list(_NAMED.finditer(text))):
        if found.start("name") >= start:
            text = f"{text[: found.start('name')]}a_{found['kind'].lower()}{text[found.end('name') :]}"
    return text


_VALUES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"(?P<option>= )?'(?P<split>\w+:\d+)?[^']*'"),
        lambda value: f"{value['option'] or ''}'{'a_split' if value['split'] and not value['option'] else '…'}'",
    ),
    (re.compile(r"(?<![\w'])\d+"), "…"),
    (re.compile(r"(?<=\bTO )[a-z]\w*"), "a_name"),
    (re.compile(r", [A-Z]+ \([^()]*\)|, [^()]*(?=\))|(?<=…), …"), ""),  # all but the first item of a list
)


def _without_values(text: str) -> str:
    """Returns the rest of an example, with placeholders instead of its values."""
    for pattern, placeholder in _VALUES:
        text = pattern.sub(placeholder, text)
    return text


def _is_statement(tokens: Sequence[Token]) -> bool:
    return bool(tokens) and tokens[0].kind == WORD and tokens[0].text.isupper()


def _is_fixed(token: Token) -> bool:
    return token.kind == PUNCTUATION or (token.kind == WORD and token.text.isupper())


def _alike(statement: Sequence[Token], example: Sequence[Token]) -> int:
    """The number of tokens that a statement and an example have in common at their beginning.

    For this comparison, all names are equal, all strings are equal, and all numbers are equal.
    """
    count = 0
    for mine, other in zip(statement, example, strict=False):
        if (mine.upper != other.upper) if _is_fixed(other) else mine.kind == PUNCTUATION:
            break
        count += 1
    return count
