"""The objects of a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.model.names import schema_of

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord

KINDS = ("table", "source", "materialized_view", "sink", "connection", "secret")
"""The kinds of objects that are in a schema, as SHOW SCHEMAS counts them. A table's source counts with the table."""


def objects_in(snapshot: Snapshot, schema: str) -> tuple[ObjectRecord, ...]:
    """The objects of a schema: tables, sources, views, sinks, connections, secrets, each in creation order."""
    return tuple(
        record
        for kind in KINDS
        for record in snapshot.all(kind)
        if schema_of(snapshot, record.name) == schema
        and not (kind == "source" and snapshot.table_of(record.id) is not None)
    )
