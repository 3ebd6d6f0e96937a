"""Makes hints about errors in queries. Both the conversion of Spark's errors and the analysis without Spark use these
hints."""

from __future__ import annotations

import re

from rw_sql.syntax.query.clauses import having_hint

_MOST_ADDED = 3
_WIDEST = 40
_VERB = re.compile(r"\s*(?P<verb>\w+)(?:\s+(?P<kind>TABLE|VIEW)\b)?", re.IGNORECASE)


def without_from(name: str) -> str:
    """The hint for a column in a query without FROM."""
    return f"add FROM and a relation, or quote the string: '{name}'"


def unnamed(name: str) -> str:
    """Returns the hint for a column in a query if the relations of the query have no named columns."""
    return f"give a column of the subquery this name: … AS {name}"


def ambiguous(name: str) -> str:
    """The hint for a column name that is ambiguous: several relations with the same name have the column, or several
    columns of one relation have the name."""
    return f"give each relation an alias of its own, and write an_alias.{name}"


def arguments(function: str, surplus: str = "") -> str:
    """The hint for a call that has a wrong number of arguments or arguments of wrong types. ``surplus`` is the text of
    the arguments to omit; empty if unknown."""
    shown = f"DESCRIBE FUNCTION EXTENDED {function} shows its arguments"
    return f"omit {surplus}; {shown}" if surplus and len(surplus) <= _WIDEST else shown


def surplus_arguments(text: str, start: int, most: int) -> tuple[int, int] | None:
    """Returns the range of the surplus arguments of the call that starts at ``start``. These are the arguments after
    the first ``most`` arguments. Returns None if there are no surplus arguments."""
    opened = at = text.find("(", start)
    depth, commas = 0, []
    while 0 <= at < len(text):
        sign = text[at]
        if sign in "'\"`":
            at = text.find(sign, at + 1)
            if at < 0:
                return None
        elif sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
            if not depth:
                break
        elif sign == "," and depth == 1:
            commas.append(at)
        at += 1
    if not 0 <= at < len(text) or len(commas) < most:
        return None
    first = commas[most - 1] + 1 if most else opened + 1
    inside = text[first:at]
    begin = first + len(inside) - len(inside.lstrip())
    return (begin, first + len(inside.rstrip())) if inside.strip() else None


def aggregate_in(place: str, name: str, text: str = "", at: int = 0) -> str:
    """The hint for an aggregate in WHERE, ON or GROUP BY. ``at`` is the aggregate's position in ``text``."""
    if place == "WHERE":
        return having_hint(text, at, name)
    joined = "JOIN" if place == "ON" else "FROM"
    return f"write {joined} (SELECT {name}(…) AS a_name …), and {place} a_name"


def nested(name: str) -> str:
    """The hint for an aggregate inside an aggregate. ``name`` is the name of the inner aggregate."""
    return f"write {name}(…) AS a_name in a subquery with GROUP BY, and aggregate a_name outside it"


def unlike_queries(first: str | int, other: str | int) -> str:
    """The hint for a set operation whose queries have different numbers of columns."""
    if not (str(first).isdecimal() and str(other).isdecimal()):
        return "select as many columns in each query: NULL AS a_name fills one"
    least = "first" if int(first) < int(other) else "second"
    missing = ", ".join(["NULL AS a_name"] * min(abs(int(first) - int(other)), _MOST_ADDED))
    return f"add {missing} to the columns of the {least} query, or remove columns from the other query"


def unreadable(kind: str, name: str) -> str:
    """The hint for a query that reads a connection, sink or secret. ``name`` is quoted if necessary."""
    if kind == "connection":
        return f"CREATE SOURCE s (…) WITH (connector = '…', connection = {name}, …) FORMAT …, then SELECT … FROM s"
    return f"SHOW CREATE {kind.upper()} {name} shows the {kind}"


def no_such_relation(text: str, name: str) -> str:
    """The hint for an unknown relation in a Spark statement if no relation has a similar name."""
    words = _VERB.match(text)
    verb, kind = (words["verb"].upper(), (words["kind"] or "TABLE").upper()) if words is not None else ("", "TABLE")
    if verb == "DROP":
        return f"SHOW {kind}S lists all {kind.lower()}s; {verb} {kind} IF EXISTS {name} succeeds if it does not exist"
    if verb == "INSERT":
        return f"CREATE TABLE {name} AS SELECT … creates it; SHOW TABLES lists all tables"
    if verb in ("ALTER", "DELETE", "MERGE", "TRUNCATE", "UPDATE"):
        return f"SHOW {kind}S lists all {kind.lower()}s"
    return "SHOW SOURCES and SHOW TABLES list the objects that can be read"
