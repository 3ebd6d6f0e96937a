"""Lowers CREATE TABLE … WITH (refresh_mode = 'FULL_RELOAD'). Each refresh of such a table reads all rows of the
upstream.

No other object can read the table's source, and no rows are loaded before the first REFRESH TABLE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, connector_names, snapshot_connector_names
from rw_sql.errors import INVALID_DEFINITION, INVALID_PROPERTY, NOT_SUPPORTED, UPSTREAM_MISSING, SqlError
from rw_sql.metastore.records import Operation, PutObject, SourceRecord, TableRecord
from rw_sql.metastore.refresh_records import RefreshRecord
from rw_sql.model.definitions import REFRESH_OPTIONS, connector_of, option_text, primary_key, source_of_table
from rw_sql.model.options import plan_options
from rw_sql.plan.checks.columns import require_columns
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.checks.upstreams import STORED_IN_LIST, require_upstream
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import source_record
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.connectors.base import Upstream
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import CreateTable, Option

STREAMING, FULL_RELOAD = "STREAMING", "FULL_RELOAD"
MODE, INTERVAL = REFRESH_OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOptions:
    """The refresh options in WITH. ``mode`` is STREAMING or FULL_RELOAD. ``interval_s`` is the interval of automatic
    refreshes in seconds; None if only REFRESH TABLE starts a refresh."""

    mode: str = STREAMING
    interval_s: int | None = None

    @property
    def is_full(self) -> bool:
        """True if each refresh reads all rows of the upstream."""
        return self.mode == FULL_RELOAD


def refresh_options(statement: CreateTable) -> RefreshOptions:
    """The refresh options of a table's WITH list. Raises SqlError, with RisingWave's message, if the options are
    invalid."""
    given = {option.key: option for option in statement.options if option.key in REFRESH_OPTIONS}
    mode = _mode(given.get(MODE))
    interval = given.get(INTERVAL)
    name = connector_of(statement)
    if interval is not None and mode != FULL_RELOAD:
        raise SqlError(
            INVALID_DEFINITION,
            f"`{INTERVAL}` is only allowed when `{MODE}` is '{FULL_RELOAD}'",
            span=interval.key_place,
            hint=f"add {MODE} = '{FULL_RELOAD}', or omit {INTERVAL}",
        )
    if name is None:
        if given:
            raise SqlError(
                INVALID_DEFINITION,
                f"`{MODE}` is only supported for tables with a connector",
                span=next(iter(given.values())).key_place,
                hint=f"add connector = 'jdbc' to WITH, or omit {MODE}",
            )
        return RefreshOptions()
    if mode == FULL_RELOAD:
        _require_reader(name, given[MODE])
        _require_key(statement)
    elif _is_batch(name):
        named = next((option.value.span for option in statement.options if option.key == "connector"), None)
        raise SqlError(
            INVALID_DEFINITION,
            f"connector \"{name}\" is a batch connector: it must use `{MODE}` = '{FULL_RELOAD}'",
            span=given[MODE].value.span if MODE in given else named or statement.name.span,
            hint=f"add {MODE} = '{FULL_RELOAD}' to WITH; REFRESH TABLE then loads the table",
        )
    return RefreshOptions(mode=mode, interval_s=None if interval is None else _seconds(interval))


def _mode(option: Option | None) -> str:
    if option is None:
        return STREAMING
    mode = option_text(option.value).strip().upper()
    if mode not in (STREAMING, FULL_RELOAD):
        raise SqlError(
            INVALID_PROPERTY,
            f"invalid `{MODE}`: {option_text(option.value)!r}",
            span=option.value.span,
            hint=f"{MODE} = '{STREAMING}' or '{FULL_RELOAD}'",
        )
    return mode


def _seconds(option: Option) -> int:
    text = option_text(option.value).strip()
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise SqlError(
            INVALID_PROPERTY,
            f"`{INTERVAL}` must be a whole number of seconds greater than 0, not {text!r}",
            span=option.value.span,
            hint=f"{INTERVAL} = '3600' refreshes the table every hour",
        )
    return int(text)


def _is_batch(name: str) -> bool:
    return name in connector_names() and connector(name).spec.is_batch


def _require_reader(name: str, option: Option) -> None:
    names = snapshot_connector_names()
    if name not in names:
        raise SqlError(
            INVALID_DEFINITION,
            f"{FULL_RELOAD} refresh mode is only supported for connectors: {', '.join(names)}, but got: {name}",
            span=option.value_place,
            hint=f"omit {MODE}: the table then follows its source",
        )


def _require_key(statement: CreateTable) -> None:
    if not primary_key(statement):
        raise SqlError(
            INVALID_DEFINITION,
            "Refreshable tables must have a PRIMARY KEY. Please define a primary key for the table.",
            span=statement.name.span,
            hint=f"CREATE TABLE {sql_name(statement.name.key)} (…, PRIMARY KEY (…)) …",
        )


def check_refreshable(statement: CreateTable) -> None:
    """Raises SqlError for clauses that have no meaning with ``refresh_mode = 'FULL_RELOAD'``."""
    span: Span = statement.name.span
    included = statement.include[0].span if statement.include else span
    formatted = statement.format.span if statement.format is not None else span
    is_plain = statement.format is None or statement.format.format in ("PLAIN", "NATIVE")
    refused = (
        (
            statement.is_append_only,
            span,
            "APPEND ONLY",
            "omit it: a refresh deletes rows that no longer exist upstream",
        ),
        (bool(statement.version_columns), span, "WITH VERSION COLUMN", "omit it: a reload has only one row per key"),
        (statement.on_conflict not in (None, "DO UPDATE FULL"), span, "ON CONFLICT", "omit it"),
        (bool(statement.include), included, "INCLUDE", "omit it: the upstream has rows, not records"),
        (not is_plain, formatted, "a format of changes", "use FORMAT PLAIN: rows are loaded without change events"),
    )
    for is_there, place, what, instead in refused:
        if is_there:
            raise SqlError(
                NOT_SUPPORTED,
                f"{what} is not supported with {MODE} = '{FULL_RELOAD}'",
                span=place,
                hint=instead,
            )


def lower_create_refreshable(
    statement: CreateTable,
    snapshot: Snapshot,
    inspector: Inspector,
    options: RefreshOptions,
    make: Callable[[Snapshot, SourceRecord], TableRecord],
    *,
    must_fit: bool = True,
) -> Plan:
    """Creates the table, its source and its refresh state (IDLE) in one commit. Reads no rows from upstream.

    If ``must_fit`` is True, the upstream must respond, and must have the declared columns with compatible types.
    Otherwise, the upstream is not contacted.

    ``make`` is a function that takes the record of the source and returns the record of the table.
    """
    check_refreshable(statement)
    name, span = statement.name.key, statement.name.span
    stored = replace(source_of_table(statement), if_not_exists=False)
    kind_name = check_source(snapshot, stored)
    if must_fit:
        planned = plan_options(snapshot, stored)
        _require_upstream(inspector.upstreams.look(kind_name, planned), name, span, statement.options)
        require_columns(inspector, kind_name, planned, statement.columns, name, span)
    blank = SourceRecord(
        id=snapshot.next_id,
        name=name,
        definition="",
        connector=kind_name,
        options=(),
        is_shared=False,
        created_at_ms=inspector.clock(),
    )
    source = source_record(snapshot, blank, stored)
    then = after(snapshot, (PutObject(record=source),))
    table = make(then, source)
    table = replace(
        table,
        id=source.id + 1,
        inputs=(),
        keys=table.primary_key,
        has_change_feed=True,
        maintenance=replace(table.maintenance, reason=_how(table, options)),
    )
    refresh = RefreshRecord(id=source.id + 2, name=name, table_id=table.id, interval_s=options.interval_s)
    changes: tuple[Change, ...] = tuple(PutObject(record=record) for record in (source, table, refresh))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(kind="CREATE TABLE", statement=table.definition, objects=(name,), changes=changes),
        changes=(ResultRow(object=name, change="CREATED", detail=_how(table, options)),),
        affected=(source.id, table.id),
    )


def _require_upstream(upstream: Upstream, name: str, span: Span, options: tuple[Option, ...]) -> None:
    """Raises SqlError if the upstream of a new table does not respond, or does not have the table that the options
    name."""
    if upstream.missing:
        raise SqlError(
            UPSTREAM_MISSING,
            f'the upstream of table "{name}" has no {", ".join(upstream.missing)}',
            span=span,
            hint=f"create {upstream.missing[0]} in the upstream, or name another one: table.name = '…'",
        )
    require_upstream(upstream, name, span, kind="table", options=options, stored=STORED_IN_LIST, is_new=True)


def _how(table: TableRecord, options: RefreshOptions) -> str:
    keys = ", ".join(table.primary_key)
    every = "" if options.interval_s is None else f", and every {options.interval_s} s"
    return f"empty until the first REFRESH TABLE{every}; rows are replaced by key ({keys})"
