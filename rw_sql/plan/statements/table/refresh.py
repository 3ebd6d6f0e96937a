"""Lowers REFRESH TABLE. The module checks the conditions that RisingWave checks, in RisingWave's order and with
RisingWave's messages. If all conditions are met, the plan sets the refresh state that makes the table's job start a
refresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import (
    CANNOT_REFRESH,
    INVALID_DEFINITION,
    NOT_SUPPORTED,
    SqlError,
)
from rw_sql.metastore.records import Operation, SourceRecord
from rw_sql.metastore.refresh_records import IDLE, RefreshRecord
from rw_sql.model.object_lookup import find_relation, object_name, undefined
from rw_sql.model.pauses import pauses_of
from rw_sql.model.refresh_states import REFRESH, begun, refresh_of, source_of
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import RefreshTable

_SPOKEN = {"source": "Source", "materialized_view": "MaterializedView", "sink": "Sink"}


def lower_refresh_table(statement: RefreshTable, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers REFRESH TABLE, which makes the table equal to its upstream. The statement does not wait for the rows: the
    table's job loads them."""
    record = _require_refreshable(statement, snapshot)
    _require_idle(statement, snapshot, record)
    change = begun(record, inspector.clock())
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(kind=REFRESH, statement=render(statement), objects=(record.name,), changes=(change,)),
        changes=(
            ResultRow(
                object=record.name, change="NOTICE", detail=f"REFRESH initiated for table '{_qualified(record.name)}'"
            ),
        ),
        affected=(record.table_id,),
        notes=(
            "the whole upstream is loaded into a staging table",
            "rows that differ are merged into the table chunk by chunk, and rows that no longer exist upstream are "
            "deleted",
        ),
    )


def _require_refreshable(statement: RefreshTable, snapshot: Snapshot) -> RefreshRecord:
    name = object_name(statement.name)
    span = statement.name.span
    table = snapshot.find("table", name)
    if table is None:
        other = find_relation(snapshot, name) or snapshot.find("sink", name)
        if other is None:
            raise undefined(snapshot, "table", statement.name)
        raise SqlError(
            NOT_SUPPORTED,
            f"REFRESH is only supported for tables, got {_SPOKEN.get(other.kind, other.kind)}.",
            span=span,
            hint={
                "materialized_view": f"REBUILD MATERIALIZED VIEW {sql_name(name)}",
                "source": f"a source reads new records automatically: SHOW SOURCE SPLITS {sql_name(name)}",
            }.get(
                other.kind, f"a sink follows its input automatically: SHOW CREATE SINK {sql_name(name)} shows the input"
            ),
        )
    record = refresh_of(snapshot, table.id)
    if record is None:
        raise SqlError(
            NOT_SUPPORTED,
            f"Table '{_qualified(name)}' is not refreshable. "
            "Only tables created with REFRESHABLE flag support manual refresh.",
            span=span,
            hint="CREATE TABLE a_name (…) WITH (refresh_mode = 'FULL_RELOAD', …) creates a refreshable table",
        )
    if not isinstance(source_of(snapshot, record), SourceRecord):
        raise SqlError(
            INVALID_DEFINITION,
            f"Table '{_qualified(name)}' has no associated source. It cannot be refreshed.",
            span=span,
            hint=f"ALTER TABLE {sql_name(name)} DROP CONNECTOR removed it: CREATE TABLE t (…) WITH (connector = …)",
        )
    return record


def _require_idle(statement: RefreshTable, snapshot: Snapshot, record: RefreshRecord) -> None:
    span = statement.name.span
    if record.status != IDLE:
        raise SqlError(
            CANNOT_REFRESH,
            f"Table '{_qualified(record.name)}' is currently in state {record.status}. "
            "Cannot start a new refresh operation.",
            span=span,
            hint=f"WAIT TABLE {sql_name(record.name)} waits until the refresh is done; SHOW JOBS shows its progress",
        )
    source = source_of(snapshot, record)
    if source is not None and pauses_of(snapshot, source.id):
        of_all = all(hold.source_id is None for hold in pauses_of(snapshot, source.id))
        raise SqlError(
            CANNOT_REFRESH,
            f"Table '{_qualified(record.name)}' cannot be refreshed while its source is paused",
            span=span,
            hint="RESUME ALL SOURCES" if of_all else f"RESUME SOURCE {sql_name(source.name)}",
        )


def _qualified(name: str) -> str:
    return f"public.{name}"
