"""Builds the JSON objects of rows from cells that are already JSON text."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Template:
    """Builds JSON objects from cells in the order of ``names``. ``key`` are the columns of the key."""

    def __init__(self, names: Sequence[str], key: Sequence[str]) -> None:
        self.key_at = tuple(names.index(name) for name in key)
        self._row = _template(names)
        self._key = _template(key)

    def row(self, cells: Sequence[str]) -> str:
        """The JSON object of a row."""
        return self._row % tuple(cells)

    def key(self, cells: Sequence[str]) -> str:
        """The JSON object of the key of a row with these cells."""
        return self._key % tuple([cells[at] for at in self.key_at])

    def key_of(self, cells: Sequence[str]) -> str:
        """The JSON object of a key with these cells, which are in the key's order."""
        return self._key % tuple(cells)


def _template(names: Sequence[str]) -> str:
    members = (encode_basestring(name).replace("%", "%%") + ": %s" for name in names)
    return "{" + ", ".join(members) + "}"
