"""Finds the clauses around a position in a query, for hints. The module works on tokens, because a query with an error
may have no tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.syntax.lexing.tokens import BACKQUOTED, END, QUOTED, WORD, scan
from rw_sql.syntax.query.tables_read import parse_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.syntax.lexing.tokens import Token

_AFTER_WHERE = frozenset({
    "CLUSTER", "DISTRIBUTE", "EMIT", "EXCEPT", "GROUP", "HAVING", "INTERSECT", "LIMIT", "MINUS", "OFFSET", "ORDER",
    "QUALIFY", "SORT", "UNION", "WINDOW", "WITH",
})  # fmt: skip
_LONGEST = 80
_NAMES = (WORD, QUOTED, BACKQUOTED)


def having_hint(text: str, at: int, name: str) -> str:
    """The hint for the aggregate ``name``, which is at position ``at`` of ``text`` in the condition of a WHERE
    clause."""
    if (tokens := _tokens(text)) is None:
        return _general(name)
    here = next((place for place, token in enumerate(tokens) if token.start == at), None)
    where = None if here is None else _before(tokens, here, "WHERE")
    if where is None:
        return _general(name)
    end = next((place for place, _ in _outside(tokens, where + 1, _AFTER_WHERE)), _closed(tokens, where + 1))
    parts = tokens[where + 1 : end]
    condition = text[parts[0].start : parts[-1].end]
    is_grouped = end < len(tokens) and tokens[end].upper == "GROUP"
    more = (token.upper for _, token in _outside(tokens, where + 1, frozenset({"HAVING", *_SET_OPERATIONS})))
    has_having = next(more, "") == "HAVING"
    keys = _plain_columns(tokens, where)
    kept, moved = "", condition
    if len(condition) > _LONGEST or "\n" in condition or any(part.upper in ("AND", "OR") for part in parts):
        if (split := _split(text, parts)) is None:
            place = "GROUP BY" if is_grouped else f"GROUP BY {keys or '…'}"
            if any(part.upper in ("CASE", "OR") for part in parts):
                return f"write {name}(…) AS a_name in a subquery with {place}, and the condition outside it"
            return f"move only the part with {name}(…) to HAVING, after {place}"
        kept, moved = split
    having = f"{'' if is_grouped or not keys else f'GROUP BY {keys} '}HAVING {moved}"
    if has_having or is_grouped:
        place = f"add {moved} to HAVING" if has_having else f"write {having} after GROUP BY"
        return f"keep WHERE {kept}, and {place}" if kept else f"omit WHERE, and {place}"
    return f"keep WHERE {kept}, and write {having} after it" if kept else f"write {having} instead of WHERE {moved}"


def _split(text: str, parts: Sequence[Token]) -> tuple[str, str] | None:
    """Divides a condition at its ANDs into a part without aggregates, which may be empty, and a part with aggregates.
    Returns None if the condition cannot be divided, or if it is too long for a hint."""
    terms: list[list[Token]] = [[]]
    depth, is_range = 0, False
    for part in parts:
        depth += (part.text in ("(", "[")) - (part.text in (")", "]"))
        if part.upper in ("CASE", "OR") and not depth:
            return None
        if part.upper == "AND" and not depth and not is_range:
            terms.append([])
            continue
        if not depth and part.upper in ("AND", "BETWEEN"):
            is_range = part.upper == "BETWEEN"
        terms[-1].append(part)
    if not all(terms):
        return None
    written = [text[term[0].start : term[-1].end] for term in terms]
    moved = [term for term in written if _has_aggregate(term)]
    kept, having = (" AND ".join(term for term in written if (term in moved) is is_moved) for is_moved in (False, True))
    is_short = max(len(kept), len(having)) <= _LONGEST and "\n" not in kept + having
    return (kept, having) if having and is_short else None


def _has_aggregate(condition: str) -> bool:
    """True if a condition calls an aggregate outside subqueries, or if the condition cannot be parsed."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_spark(f"SELECT {condition}")
    except (RecursionError, SqlglotError):
        return True
    return any(found.find_ancestor(exp.Select) is tree for found in tree.find_all(exp.AggFunc))


def _general(name: str) -> str:
    return f"write the condition after GROUP BY, as HAVING {name}(…) …"


def _before(tokens: Sequence[Token], place: int, word: str) -> int | None:
    """The place of the nearest ``word`` before a place. Ignores words inside brackets that are closed before the place,
    but not words before brackets that enclose the place."""
    depth = 0
    for at in range(place - 1, -1, -1):
        depth = max(0, depth + (tokens[at].text in (")", "]")) - (tokens[at].text in ("(", "[")))
        if not depth and tokens[at].kind == WORD and tokens[at].upper == word:
            return at
    return None


def _closed(tokens: Sequence[Token], start: int) -> int:
    """The place of the closing bracket of the brackets that enclose a place. If no bracket encloses the place, the
    result is the end of the statement."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at].text in ("(", "[")) - (tokens[at].text in (")", "]"))
        if depth < 0 or tokens[at].text == ";":
            return at
    return len(tokens)


def _outside(tokens: Sequence[Token], start: int, words: frozenset[str]) -> Iterator[tuple[int, Token]]:
    """The occurrences of ``words`` between ``start`` and the end of the query, outside brackets."""
    depth = 0
    for at in range(start, _closed(tokens, start)):
        depth += (tokens[at].text in ("(", "[")) - (tokens[at].text in (")", "]"))
        if not depth and tokens[at].kind == WORD and tokens[at].upper in words:
            yield at, tokens[at]


def _tokens(text: str) -> list[Token] | None:
    """The tokens of a query; None if the query cannot be divided into tokens."""
    try:
        return [token for token in scan(text) if token.kind != END]
    except SqlError:
        return None


def _clause_at(tokens: Sequence[Token], at: int) -> tuple[int, str]:
    """Finds the clause that contains the position ``at`` of the text. Returns the place of the clause's first token,
    and the clause's word."""
    here = next((place for place, token in enumerate(tokens) if token.start >= at), len(tokens))
    clauses = [(found, word) for word in _CLAUSES if (found := _before(tokens, here, word)) is not None]
    return max(clauses, default=(0, ""))


def relations_before(text: str, at: int) -> list[str] | None:
    """If the position ``at`` is in a clause after FROM, such as ORDER BY, returns the relations in the FROM clause of
    the same query, as written. A relation without a name is ``""``. Returns None if the position is in another
    clause."""
    if (tokens := _tokens(text)) is None:
        return None
    clause, word = _clause_at(tokens, at)
    select = _before(tokens, clause, "SELECT") if word in _AFTER_FROM else None
    if select is None or (word in _OF_RESULT and _result_alone(tokens, select) is not None):
        return None
    start = next((place for place, _ in _outside(tokens, select + 1, frozenset({"FROM"}))), clause)
    named, depth = [], 0
    for at in range(start, clause):
        token = tokens[at]
        depth += (token.text == "(") - (token.text == ")")
        if not depth and (token.upper in ("FROM", "JOIN") or token.text == ","):
            named.append(_name_at(tokens[at + 1 : clause]))
    return named or [""]


def result_clause(text: str, at: int) -> tuple[str, str] | None:
    """If the clause at position ``at`` can name only columns of the result, returns the reason, such as ``DISTINCT``,
    and the clause itself, such as ``ORDER BY``. Returns None for other clauses."""
    if (tokens := _tokens(text)) is None:
        return None
    clause, word = _clause_at(tokens, at)
    select = _before(tokens, clause, "SELECT") if word in _OF_RESULT else None
    reason = _result_alone(tokens, select) if select is not None else None
    return None if reason is None else (reason, f"{word} BY")


def _result_alone(tokens: Sequence[Token], select: int) -> str | None:
    """If a query has DISTINCT or a set operation, returns the words of this clause, because clauses such as ORDER BY
    can then name only columns of the result. Returns None for other queries."""
    if [token.upper for token in tokens[select + 1 : select + 2]] == ["DISTINCT"]:
        return "DISTINCT"
    return next((word for word in _SET_OPERATIONS if _before(tokens, select, word) is not None), None)


def _name_at(tokens: Sequence[Token]) -> str:
    """The relation's name at the beginning of the tokens, as written; empty for a subquery or a function."""
    if not tokens or tokens[0].kind not in _NAMES:
        return ""
    end = 1
    while end + 1 < len(tokens) and tokens[end].text == "." and tokens[end + 1].kind in _NAMES:
        end += 2
    is_call = end < len(tokens) and tokens[end].text == "("
    return "" if is_call else "".join(token.text for token in tokens[:end])


_SET_OPERATIONS = ("EXCEPT", "INTERSECT", "MINUS", "UNION")
_OF_RESULT = ("CLUSTER", "DISTRIBUTE", "ORDER", "SORT")
_AFTER_FROM = (*_OF_RESULT, "HAVING", "QUALIFY")
_CLAUSES = ("FROM", "GROUP", "ON", "SELECT", "WHERE", *_AFTER_FROM)


def _plain_columns(tokens: Sequence[Token], where: int) -> str:
    """The plain column names in the SELECT list, separated by commas; ``…`` if the list has other items that GROUP BY
    may need. Calls are assumed to be aggregates, which GROUP BY does not need."""
    select = _before(tokens, where, "SELECT")
    if select is None:
        return ""
    end = next((at for at, _ in _outside(tokens, select + 1, frozenset({"FROM"}))), where)
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[select + 1 : end]:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and not depth:
            items.append([])
        else:
            items[-1].append(token)
    keys = []
    for item in items:
        plain = item[:-2] if len(item) > 2 and item[-2].upper == "AS" else item
        names, signs = plain[::2], plain[1::2]
        if all(token.kind in _NAMES for token in names) and all(token.text == "." for token in signs):
            keys.append("".join(token.text for token in plain))
        elif not any(token.text == "(" for token in item):
            return "…"
    return ", ".join(keys)
