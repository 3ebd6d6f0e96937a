"""What lowering asks of tables that are the user's own, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.requests.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtTable:
    """A table of Spark's by its name as a query writes it: ``orders``, ``shop.orders``, ``delta.`/path```."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """The answer: where a Delta table lies, and its schema as Spark's JSON; ``path`` is empty for any other.

    ``is_missing``: Spark knows no table or view of that name.
    """

    path: str = ""
    schema: str = ""
    has_change_feed: bool = False
    is_missing: bool = False


def look_at_table(name: str) -> Generator[LookAtTable, object, TableLook]:
    """Asks for a look at a table of the user's."""
    return ask(LookAtTable(name=name), TableLook)
