"""View queries over eight tables, and the same queries with one name broken in each."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache

from sqlglot import exp

from rw_sql.plan.queries.analysis.findings import Column
from rw_sql.plan.queries.analysis.reading import Text
from tests.conftest import FIXTURES

ANALYSIS = FIXTURES / "analysis"
RECORDED = ANALYSIS / "broken.txt"
BREAKS_PER_QUERY = 3


@cache
def tables() -> dict[str, tuple[Column, ...]]:
    """The columns of the tables that the queries read."""
    stored = json.loads((ANALYSIS / "tables.json").read_text("utf-8"))
    return {name: tuple(Column(*column) for column in columns.items()) for name, columns in stored.items()}


@cache
def queries() -> tuple[str, ...]:
    """The queries, each a line of ``queries.sql``."""
    lines = (ANALYSIS / "queries.sql").read_text("utf-8").splitlines()
    return tuple(line.removesuffix(";") for line in lines if line and not line.startswith("--"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A query with a misspelt name at ``[start, end)``; ``kind`` is the kind of the name."""

    number: int
    kind: str
    name: str
    wrong: str
    start: int
    query: str

    @property
    def label(self) -> str:
        """One line that identifies the broken query."""
        return f"{self.number} {self.kind} {self.name}@{self.start} -> {self.wrong}"


@cache
def broken_queries() -> tuple[Broken, ...]:
    """Queries in which a letter of one name is left out, doubled, replaced or swapped. The names of a query are drawn
    by the query's number."""
    found = []
    for number, query in enumerate(queries(), start=1):
        drawn = random.Random(number)
        places = _names(query)
        for start, end, kind in sorted(drawn.sample(places, min(BREAKS_PER_QUERY, len(places)))):
            name = query[start:end]
            wrong = _misspelt(name, drawn)
            text = query[:start] + wrong + query[end:]
            found.append(Broken(number=number, kind=kind, name=name, wrong=wrong, start=start, query=text))
    return tuple(found)


def _misspelt(name: str, drawn: random.Random) -> str:
    inner = name.strip("`")
    at = drawn.randrange(len(inner))
    way = drawn.choice(("left out", "doubled", "replaced", "swapped")) if len(inner) > 3 else "doubled"
    match way:
        case "left out":
            wrong = inner[:at] + inner[at + 1 :]
        case "doubled":
            wrong = inner[: at + 1] + inner[at:]
        case "replaced":
            wrong = inner[:at] + ("q" if inner[at] != "q" else "x") + inner[at + 1 :]
        case _:
            wrong = inner[:at] + inner[at:][1::-1] + inner[at + 2 :]
    if wrong.lower() == inner.lower() or not (wrong[0].isalpha() or name.startswith("`")):
        wrong = inner + "x"
    return f"`{wrong}`" if name.startswith("`") else wrong


def _names(query: str) -> list[tuple[int, int, str]]:
    """The names in a query, with their places and their kinds."""
    text = Text(query, "spark")
    assert text.tree is not None, query
    found: dict[int, tuple[int, int, str]] = {}
    for node in text.tree.find_all(exp.Identifier, exp.Anonymous):
        place = text.place(node)
        if place is not None:
            found[place[0]] = (*place, _kind(node))
    return [found[start] for start in sorted(found)]


def _kind(node: exp.Expr) -> str:
    parent = node.parent
    if isinstance(node, exp.Anonymous):
        return "function"
    if isinstance(parent, exp.Table):
        return "relation"
    if isinstance(parent, exp.TableAlias | exp.Alias | exp.Aliases | exp.Lambda | exp.Window):
        return "alias"
    if isinstance(parent, exp.Column) and parent.args.get("table") is node:
        return "qualifier"
    return "column"
