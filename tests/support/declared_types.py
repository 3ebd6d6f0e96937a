"""Types of databases, each with values, with the type that ``(*)`` gives a column, and with the other types with which
the column can be declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARYING = "CHARACTER VARYING"
STAMP = "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A type of a database, and ``values`` as SQL expressions of the database.

    ``by_star`` is the type that ``(*)`` gives a column, and ``refused`` are the values that do not fit this type.
    ``others`` maps each other documented type to the values that do not fit that type. Every value fits CHARACTER
    VARYING.
    """

    type: str
    by_star: str
    values: tuple[str, ...]
    refused: tuple[str, ...] = ()
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def declared(self) -> dict[str, tuple[str, ...]]:
        """The documented types, each with the values that do not fit."""
        return {self.by_star: self.refused, VARYING: ()} | dict(self.others)


def columns_of(kinds: tuple[Kind, ...]) -> Iterator[tuple[str, Kind, str, tuple[str, ...]]]:
    """Yields a column for each kind and each documented type of the kind: the column's name, the kind, the declared
    type, and the values that do not fit this type."""
    at = 0
    for kind in kinds:
        for declared, refused in kind.declared.items():
            yield f"c{at}", kind, declared, refused
            at += 1


def is_same(here: Any, there: Any) -> bool:
    """True if two values are equal. NaN equals itself; the elements of lists and the members of objects are
    compared one by one; times with a zone are compared as points in time."""
    if isinstance(here, list | tuple) and isinstance(there, list | tuple):
        return len(here) == len(there) and all(map(is_same, here, there))
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(is_same(here[name], there[name]) for name in here)
    if isinstance(here, bool) or isinstance(there, bool):
        return here is there
    return bool(here == there) or (here != here and there != there)
