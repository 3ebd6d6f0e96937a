"""The option ``delimiter`` of ENCODE CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.formats import DELIMITER

if TYPE_CHECKING:
    from collections.abc import Mapping


def separator_of(options: Mapping[str, str]) -> str:
    """The character that separates the fields of a line."""
    return {"\\t": "\t"}.get(found := options.get(DELIMITER, ","), found)
