"""Handles the user's own Delta tables, which rw_sql does not write, as inputs of a view or sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import UPSTREAM_UNREACHABLE, SqlError
from rw_sql.metastore.records import DeltaTableRecord
from rw_sql.model.object_lookup import find_relation
from rw_sql.plan.queries.places import place_of
from rw_sql.syntax.query.tables_read import replaced_tables, table_places

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.tables import TableLook
    from rw_sql.syntax.statements import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaInputs:
    """A query and the records of the Delta tables that it reads. In the query's text, ``text``, each of these tables
    has a name that is valid for a temporary view.

    ``new`` are the records that are not in the catalog yet. ``missing`` are the names in the query for which no table
    exists.
    """

    text: str
    records: tuple[DeltaTableRecord, ...]
    new: tuple[DeltaTableRecord, ...]
    missing: tuple[str, ...] = ()


def delta_inputs(snapshot: Snapshot, inspector: Inspector, query: Query, text: str) -> DeltaInputs:
    """Finds the Delta tables that a query reads, and renames them in the query. ``text`` is the query in Spark's SQL.
    The names of relations that are not Delta tables remain unchanged.

    Raises SqlError UPSTREAM_UNREACHABLE for a table that only Spark can read.
    """
    found: dict[str, DeltaTableRecord] = {}
    new: dict[str, DeltaTableRecord] = {}
    missing: list[str] = []
    for place in table_places(text):
        if place.written in found:
            continue
        look = inspector.tables.look(place.written)
        if look.is_missing:
            missing.append(place.written)
        _require_readable(look, place.written, place_of(query, place.written))
        record, is_new = _record_of(look, snapshot, place.written, place.name, tuple(new.values()))
        if record is not None:
            found[place.written] = record
            if is_new:
                new[record.path] = record
    names = {written: record.name for written, record in found.items()}
    return DeltaInputs(
        text=replaced_tables(text, names),
        records=tuple(dict.fromkeys(found.values())),
        new=tuple(new.values()),
        missing=tuple(missing),
    )


def delta_table(
    snapshot: Snapshot, inspector: Inspector, written: str, name: str, span: Span
) -> tuple[DeltaTableRecord | None, bool]:
    """Returns the record of a table that a statement names at ``span``. The second result is True if the record is not
    in the catalog yet.

    The record is None if the name is not the name of a Delta table. Raises SqlError UPSTREAM_UNREACHABLE for a table
    that only Spark can read.
    """
    look = inspector.tables.look(written)
    _require_readable(look, written, span)
    return _record_of(look, snapshot, written, name, ())


def _require_readable(look: TableLook, written: str, span: Span) -> None:
    """Raises SqlError UPSTREAM_UNREACHABLE for a table that only Spark can read, because SHOW JOBS could not show the
    lag of the jobs that read such a table, and FLUSH could not wait for these jobs."""
    if look.unreadable:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"only Spark can read the table {written}: {look.unreadable}",
            span=span,
            hint="rw_sql reads the table's log without Spark: set the address and the keys of the store in the "
            "environment of its processes (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …), and install the store's package, "
            "such as rw-sql[s3]",
        )


def _record_of(
    look: TableLook, snapshot: Snapshot, written: str, name: str, others: tuple[DeltaTableRecord, ...]
) -> tuple[DeltaTableRecord | None, bool]:
    if not look.path:
        return None, False
    known = (*snapshot.all("delta_table"), *others)
    for record in known:
        if (record.path, record.schema, record.has_change_feed) == (look.path, look.schema, look.has_change_feed):
            return record, False
    made = DeltaTableRecord(
        id=snapshot.next_id + len(others),
        name=_free_name(snapshot, name, {record.name for record in known}),
        written=written,
        path=look.path,
        schema=look.schema,
        has_change_feed=look.has_change_feed,
    )
    return made, True


def _free_name(snapshot: Snapshot, name: str, taken: set[str]) -> str:
    """A name that neither an rw_sql object nor another table has."""
    plain = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name.lower()).strip("_")
    plain = plain if plain and not plain[0].isdigit() else f"table_{plain}"
    number, free = 1, plain
    while free in taken or find_relation(snapshot, free) is not None:
        number += 1
        free = f"{plain}_{number}"
    return free


def feed_property(written: str) -> str:
    """The statement that enables a table's change data feed."""
    return f"ALTER TABLE {written} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"


def only_appended(snapshot: Snapshot, inputs: Iterable[int]) -> tuple[str, ...]:
    """Returns notices about the Delta tables among the inputs that have no change data feed: the jobs that read such a
    table stall when rows of the table are updated or deleted."""
    tables = (snapshot.get(id_) for id_ in inputs)
    return tuple(
        f"an UPDATE or DELETE on {table.written} stalls its reader, because the table has no change data feed: run "
        f"{feed_property(table.written)} first, and create the reader afterwards"
        for table in tables
        if isinstance(table, DeltaTableRecord) and not table.has_change_feed
    )


def left_unread(snapshot: Snapshot, dropped: Iterable[int]) -> tuple[int, ...]:
    """The ids of the user's own tables that no view or sink reads after the given objects are dropped.

    The caller removes the records of these tables from the catalog.
    """
    gone = set(dropped)
    return tuple(
        table.id
        for table in snapshot.all("delta_table")
        if table.id not in gone and all(reader.id in gone for reader in snapshot.readers_of(table.id))
    )
