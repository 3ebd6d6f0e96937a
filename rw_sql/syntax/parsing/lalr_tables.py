"""Provides the LALR tables for grammar/*.lark. Lark builds the tables, and :mod:`rw_sql.syntax.parsing.parser` uses
them.

Building the tables takes a fifth of a second. The tables of the current grammar are therefore stored in
``grammar/tables.json``, which ``python -m rw_sql.syntax`` regenerates. If the file does not match the grammar, the
tables are built at load time.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from rw_sql.assets import list_assets, read_asset

CAPTURES = ("OPTION_KEY", "QUERY", "EXPRESSION")
"""The terminals for free text. Where the grammar expects one of these terminals, the parser cuts the terminal's text
out of the statement."""

VALUES = frozenset({"NAME", "WORD", "STRING", "NUMBER", *CAPTURES})
"""The terminals whose tokens have a value. All other terminals are keywords and punctuation."""

SIGNS = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "<": "LESSTHAN", ">": "MORETHAN", ",": "COMMA", ".": "DOT",
    "=": "EQUAL", "-": "MINUS", "+": "PLUS", "*": "STAR",
}  # fmt: skip
"""Lark's names for the punctuation characters that the grammar has in quotes."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction by a rule. The reduction pops ``size`` values, calls ``action`` with the values at the indexes
    ``kept``, and goes to the state for ``origin``."""

    action: str
    origin: str
    size: int
    kept: tuple[int, ...]
    spliced: tuple[int, ...]
    is_splice: bool


Actions = dict[str, "int | Reduction"]
Spelled = dict[str, tuple[tuple[str, tuple[str, ...]], ...]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The automaton. For each state, the tables have the action for each terminal (a state to shift to, or a
    reduction), and the goto table.

    ``spelled`` maps a word to the keywords that begin with this word and to each keyword's words, for example IF to
    IF_NOT_EXISTS and IF_EXISTS. The longest keyword comes first. ``captures`` maps a state to the terminal whose free
    text is cut out in this state. ``starts`` maps a start rule to the state in which the rule begins, and ``accepts``
    maps the rule to the state in which the rule is complete.
    """

    actions: tuple[Actions, ...]
    goto: tuple[dict[str, int], ...]
    captures: tuple[str | None, ...]
    starts: dict[str, int]
    accepts: dict[str, int]
    spelled: Spelled


def grammar_text() -> str:
    """Returns the whole grammar: the files of ``grammar/`` in the order of their names, with declarations of
    keywords."""
    text = "\n".join(read_asset("grammar", name) for name in list_assets("grammar", ".lark"))
    bare = re.sub(r"//[^\n]*|\"[^\"]*\"", "", text)
    terminals = sorted(set(re.findall(r"\b[A-Z][A-Z_]*\b", bare)))
    return f"{text}\n%declare {' '.join(terminals)}\n"


def digest(text: str) -> str:
    """A digest of a grammar's text."""
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def tables() -> Tables:
    """The tables of the grammar, loaded once per process."""
    text = grammar_text()
    if "tables.json" in list_assets("grammar", ".json"):
        kept = json.loads(read_asset("grammar", "tables.json"))
        if kept["grammar"] == digest(text):
            return load_tables(kept)
    return load_tables(build_tables(text))


def load_tables(kept: dict[str, Any]) -> Tables:
    """Loads tables from the result of :func:`build_tables`."""
    terminals: list[str] = kept["terminals"]
    rules = [
        Reduction(r["action"], r["origin"], r["size"], tuple(r["kept"]), tuple(r["spliced"]), r["is_splice"])
        for r in kept["rules"]
    ]
    rows: list[Actions] = [
        {
            terminals[t]: target if target >= 0 else rules[-target - 1]
            for t, target in zip(row[::2], row[1::2], strict=True)
        }
        for row in kept["rows"]
    ]
    actions = tuple(rows[row] for row in kept["states"])
    captured = {id(row): _capture(row) for row in rows}
    return Tables(
        actions=actions,
        goto=tuple(kept["gotos"][at] for at in kept["goto"]),
        captures=tuple(captured[id(row)] for row in actions),
        starts=kept["starts"],
        accepts=kept["accepts"],
        spelled=_spelled(frozenset(terminals) - VALUES - set(SIGNS.values()) - {"$END"}),
    )


def _capture(row: Actions) -> str | None:
    """Returns the terminal whose free text is cut out in a state. Only shifts count, because a state also has
    reductions for terminals that cannot follow in this state."""
    found = [terminal for terminal in CAPTURES if type(row.get(terminal)) is int]
    assert len(found) < 2, f"several terminals would be cut out in one state: {found}"
    return found[0] if found else None


def _spelled(keywords: frozenset[str]) -> Spelled:
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for keyword in sorted(keywords, key=lambda k: (-k.count("_"), k)):
        words = ("AS",) if keyword == "AS_QUERY" else tuple(keyword.split("_"))
        found.setdefault(words[0], []).append((keyword, words))
    return {word: tuple(listed) for word, listed in found.items()}


def build_tables(text: str, starts: tuple[str, ...] = ("statement",)) -> dict[str, Any]:
    """Builds the tables for a grammar, as values that JSON can represent. Equal grammars give equal tables.

    Lark builds the tables in its mode ``strict``, and raises lark.exceptions.GrammarError if the grammar is ambiguous.
    """
    from lark import Lark
    from lark.lexer import Lexer
    from lark.parsers.lalr_analysis import Shift

    class NoLexer(Lexer):
        __future_interface__ = 1

        def __init__(self, conf: object) -> None: ...

        def lex(self, lexer_state: Any, parser_state: Any) -> Any:
            raise AssertionError("the tables are driven by rw_sql.syntax.parsing.parser")

    lark = Lark(text, start=list(starts), parser="lalr", lexer=NoLexer, strict=True, maybe_placeholders=False)
    table: Any = lark.parser.parser._parse_table
    number = _numbered(table.states, [table.start_states[start] for start in starts])
    order = sorted(number, key=lambda state: number[state])
    used = {target for state in order for kind, target in table.states[state].values() if kind is not Shift}
    rules = sorted(used, key=lambda rule: (rule.origin.name, rule.order, rule.alias or "", str(rule)))
    rule_number = {rule: at for at, rule in enumerate(rules)}
    terminals = sorted({s for state in order for s in table.states[state] if _is_terminal(s)})
    terminal_number = {terminal: at for at, terminal in enumerate(terminals)}
    rows: dict[tuple[int, ...], int] = {}
    gotos: dict[str, int] = {}
    states, goto = [], []
    for state in order:
        row: list[int] = []
        leads: dict[str, int] = {}
        for symbol, (kind, target) in sorted(table.states[state].items()):
            if not _is_terminal(symbol):
                leads[symbol] = number[target]
            else:
                row += [terminal_number[symbol], number[target] if kind is Shift else -rule_number[target] - 1]
        states.append(rows.setdefault(tuple(row), len(rows)))
        goto.append(gotos.setdefault(json.dumps(leads), len(gotos)))
    return {
        "grammar": digest(text),
        "starts": {start: number[table.start_states[start]] for start in starts},
        "accepts": {start: number[table.end_states[start]] for start in starts},
        "terminals": terminals,
        "rules": [asdict(_reduction(rule)) for rule in rules],
        "rows": [list(row) for row in rows],
        "states": states,
        "gotos": [json.loads(leads) for leads in gotos],
        "goto": goto,
    }


def _is_terminal(symbol: str) -> bool:
    return symbol.isupper() or symbol == "$END"


def _numbered(states: Any, starts: list[Any]) -> dict[Any, int]:
    """Numbers the states by a breadth-first search, because Lark numbers the states differently in each run."""
    from lark.parsers.lalr_analysis import Shift

    number = {start: at for at, start in enumerate(starts)}
    walk = list(starts)
    for state in walk:
        for _, (kind, target) in sorted(states[state].items(), key=lambda item: item[0]):
            if kind is Shift and target not in number:
                number[target] = len(number)
                walk.append(target)
    return number


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


def kept_text() -> str:
    """The content of ``grammar/tables.json`` for the current grammar."""
    return json.dumps(build_tables(grammar_text()), separators=(",", ":")) + "\n"
