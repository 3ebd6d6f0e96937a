"""grammar/*.lark → LALR tables. Lark builds them, :mod:`rw_sql.syntax.parser` drives them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from rw_sql.assets import list_assets, read_asset

CAPTURES = ("OPTION_KEY", "QUERY", "EXPRESSION")
"""Terminals that the parser cuts out of the text where the grammar asks for them."""

VALUES = frozenset({"NAME", "WORD", "STRING", "NUMBER", *CAPTURES})
"""Terminals that carry a value. All others are keywords and signs."""

SIGNS = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "<": "LESSTHAN", ">": "MORETHAN", ",": "COMMA", ".": "DOT",
    "=": "EQUAL", "-": "MINUS", "+": "PLUS", "*": "STAR",
}  # fmt: skip
"""Lark's names for the quoted signs of the grammar."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A rule to apply: pop ``size`` values, call ``action`` with those at ``kept``, go to ``origin``."""

    action: str
    origin: str
    size: int
    kept: tuple[int, ...]
    spliced: tuple[int, ...]
    is_splice: bool


Actions = dict[str, "int | Reduction"]


@dataclass(frozen=True, slots=True)
class Tables:
    """The automaton: per state what each terminal does (a state to shift to, or a reduction) and where rules lead."""

    actions: tuple[Actions, ...]
    goto: tuple[dict[str, int], ...]
    captures: tuple[str | None, ...]
    start: int
    accept: int
    keywords: frozenset[str]
    spelled: dict[str, tuple[tuple[str, tuple[str, ...]], ...]]
    """First word → the keywords that begin with it and their words, longest first: IF → IF_NOT_EXISTS, IF_EXISTS."""


def grammar_text() -> str:
    """The whole grammar in one piece: the files of ``grammar/`` in the order of their names, keywords declared."""
    text = "\n".join(read_asset("grammar", name) for name in list_assets("grammar", ".lark"))
    bare = re.sub(r"//[^\n]*|\"[^\"]*\"", "", text)
    terminals = sorted(set(re.findall(r"\b[A-Z][A-Z_]*\b", bare)))
    return f"start: statement\n{text}\n%declare {' '.join(terminals)}\n"


@cache
def tables() -> Tables:
    """The tables, built once in a process."""
    return build_tables(grammar_text())


def build_tables(text: str) -> Tables:
    """Tables for a grammar. Raises lark.exceptions.GrammarError where the grammar is ambiguous (``strict``)."""
    from lark import Lark
    from lark.lexer import Lexer
    from lark.parsers.lalr_analysis import Shift

    class NoLexer(Lexer):
        __future_interface__ = 1

        def __init__(self, conf: object) -> None: ...

        def lex(self, lexer_state: object, parser_state: object) -> object:  # type: ignore[override]
            raise AssertionError("the tables are driven by rw_sql.syntax.parser")

    lark = Lark(text, parser="lalr", lexer=NoLexer, strict=True, maybe_placeholders=False)
    table: Any = lark.parser.parser._parse_table
    reductions: dict[Any, Reduction] = {}
    actions: list[Actions] = [{} for _ in table.states]
    goto: list[dict[str, int]] = [{} for _ in table.states]
    terminals: set[str] = set()
    for state, row in table.states.items():
        for symbol, (kind, target) in row.items():
            if kind is not Shift:
                if target not in reductions:
                    reductions[target] = _reduction(target)
                actions[state][symbol] = reductions[target]
            elif symbol.isupper() or symbol == "$END":
                actions[state][symbol] = target
            else:
                goto[state][symbol] = target
        terminals |= set(actions[state])
    keywords = frozenset(terminals - VALUES - set(SIGNS.values()) - {"$END"})
    return Tables(
        actions=tuple(actions),
        goto=tuple(goto),
        captures=tuple(_capture(row) for row in actions),
        start=table.start_states["start"],
        accept=table.end_states["start"],
        keywords=keywords,
        spelled=_spelled(keywords),
    )


def _spelled(keywords: frozenset[str]) -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for keyword in sorted(keywords, key=lambda k: (-k.count("_"), k)):
        words = ("AS",) if keyword == "AS_QUERY" else tuple(keyword.split("_"))
        found.setdefault(words[0], []).append((keyword, words))
    return {word: tuple(listed) for word, listed in found.items()}


def _reduction(rule: Any) -> Reduction:
    symbols = list(enumerate(rule.expansion))
    return Reduction(
        action=rule.alias or rule.origin.name,
        origin=rule.origin.name,
        size=len(symbols),
        kept=tuple(i for i, s in symbols if not s.is_term or s.name in VALUES or rule.options.keep_all_tokens),
        spliced=tuple(i for i, s in symbols if s.name.startswith("__")),
        is_splice=rule.origin.name.startswith("__"),
    )


def _capture(row: Actions) -> str | None:
    """The terminal to cut out of the text in this state. Only a shift counts: reductions claim too many lookaheads."""
    found = [terminal for terminal in CAPTURES if type(row.get(terminal)) is int]
    assert len(found) < 2, f"a state asks for several of {found}"
    return found[0] if found else None
