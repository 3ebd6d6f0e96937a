"""The request for a look at an external table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.ports.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtTable:
    """A table in Spark, by its name as written in a query: ``orders``, ``shop.orders``, ``delta.`/path```."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """The answer: a Delta table's path, and its schema as Spark's JSON; ``path`` is empty for any other table."""

    path: str = ""
    schema: str = ""
    has_change_feed: bool = False


def look_at_table(name: str) -> Generator[LookAtTable, object, TableLook]:
    """Requests a look at an external table."""
    return ask(LookAtTable(name=name), TableLook)
