"""The variables of a cell: from its options, from ``\\set``, and from the notebook."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any


class CellVariables(Mapping[str, str]):
    """The variables of a cell by name. ``own`` variables take precedence (None: unset) over the notebook's variables
    whose values are strings, numbers, booleans or times."""

    def __init__(self, own: Mapping[str, str | None], namespace: Mapping[str, Any]) -> None:
        self._own = own
        self._namespace = namespace

    def __getitem__(self, name: str) -> str:
        if name in self._own:
            value = self._own[name]
        else:
            value = None if name.startswith("_") else as_text(self._namespace.get(name))
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in dict.fromkeys([*self._own, *self._namespace]) if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def as_text(value: object) -> str | None:
    """The text that replaces a variable with this Python value; None if there is no such text."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float() | Decimal():
            return str(value)
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return None
