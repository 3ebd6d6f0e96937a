"""The number of partitions of the state of a view's or sink's query (Spark's shuffle partitions)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import PARALLELISM
from rw_sql.model.parameters import STREAMING_PARALLELISM

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot


def streaming_parallelism(snapshot: Snapshot) -> int:
    """The parallelism of a query that is created or rebuilt now and sets none itself."""
    value = snapshot.parameter(STREAMING_PARALLELISM)
    return PARALLELISM if value is None else int(value)
