"""Compares the order of a table's keys with the order at the start of the table's snapshot
(:data:`rw_sql.connectors.changes.KEY_ORDER`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def has_other_order(next_key: str | None, order: str | None, key: Sequence[str], now: str) -> bool:
    """True if a snapshot cannot continue after ``next_key`` because the order of the keys has changed. ``order`` is the
    order at the time when ``next_key`` was read, and ``now`` is the present order; both contain collations. The result
    is true if they differ while the key still has the same columns. It is false if ``order`` is None."""
    return next_key is not None and order not in (None, now) and list(json.loads(next_key)) == list(key)


def begins_again(table: str) -> str:
    """The notice that the snapshot of a table begins again, because the order of the table's keys has changed (see
    :func:`has_other_order`)."""
    return f"the snapshot of {table} begins again: the collation of the table's primary key was changed upstream"
