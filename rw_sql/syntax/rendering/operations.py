"""Renders statements about operations and statements about the session as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from rw_sql.syntax.lexing.identifiers import literal, quoted
from rw_sql.syntax.rendering.layout import Clauses
from rw_sql.syntax.rendering.parts import (
    allow_text,
    name_text,
    options_text,
    parameter_text,
    reason_text,
    switches_text,
    value_text,
)
from rw_sql.syntax.statements import (
    InjectBack,
    InjectFromCheckpoint,
    InjectFromFile,
    InjectFromGroup,
    InjectFromSource,
    InjectShift,
    InjectTarget,
    InjectTo,
    InjectToOffset,
    InjectToTimestamp,
    InjectValues,
    SplitEntry,
    WordValue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax import statements as ast


def _for_splits(clauses: Clauses, splits: Sequence[ast.SplitId]) -> None:
    clauses.listed("FOR SPLITS", [literal(split.id) for split in splits])


def reset_source_splits(s: ast.ResetSourceSplits) -> str:
    clauses = Clauses(f"RESET SOURCE SPLITS {name_text(s.name)}")
    _for_splits(clauses, s.splits)
    clauses.add(allow_text(s.allow))
    switches = switches_text(
        rediscover=None if s.is_rediscovering else False,
        forget_offsets=True if s.is_forgetting_offsets else None,
        validate=None if s.is_validated else False,
    )
    return clauses.listed("WITH", switches).add(reason_text(s.reason).lstrip()).text()


def checkpoint_options(s: ast.InjectCheckpointOffsets) -> list[str]:
    """Returns the options that only the WITH clause of a statement about a checkpoint accepts."""
    return options_text(s.options) + switches_text(
        table=", ".join(s.tables) or None,
        exactly=True if s.is_exactly else None,
        assume_stopped=True if s.is_assumed_stopped else None,
        watch=s.watch,
    )


def show_checkpoint(s: ast.ShowCheckpoint) -> str:
    listed = options_text(s.options) + switches_text(table=", ".join(s.tables) or None)
    return Clauses(f"SHOW CHECKPOINT {literal(s.path)}").listed("WITH", listed).text()


def inject(
    head: str, s: ast.InjectSourceOffsets | ast.InjectCheckpointOffsets, more_options: Sequence[str] = ()
) -> str:
    clauses = Clauses(head)
    if isinstance(s.target, InjectValues):
        clauses.listed("VALUES", [_entry(entry) for entry in s.target.entries])
    else:
        clauses.add(_target(s.target))
    _for_splits(clauses, s.splits)
    clauses.add(allow_text(s.allow))
    switches = switches_text(
        convention=None if s.convention == "next" else s.convention, validate=None if s.is_validated else False
    )
    return clauses.listed("WITH", [*more_options, *switches]).add(reason_text(s.reason).lstrip()).text()


def _entry(entry: SplitEntry) -> str:
    return f"{literal(entry.split.id)} = {value_text(entry.value)}"


def _target(target: InjectTarget) -> str:
    match target:
        case InjectValues():
            return f"VALUES ({', '.join(_entry(entry) for entry in target.entries)})"
        case InjectFromFile():
            return f"FROM FILE {literal(target.path)}"
        case InjectFromGroup():
            return f"FROM GROUP {literal(target.group)}"
        case InjectFromCheckpoint():
            return f"FROM CHECKPOINT {literal(target.path)}"
        case InjectFromSource():
            return f"FROM SOURCE {name_text(target.source)}"
        case InjectTo():
            return f"TO {target.where.upper()}"
        case InjectToOffset():
            return f"TO OFFSET {target.offset}"
        case InjectToTimestamp():
            return f"TO TIMESTAMP {literal(target.timestamp)}"
        case InjectShift():
            return f"TO SHIFT {target.records:+d}"
        case InjectBack():
            return f"BACK BY INTERVAL {literal(target.interval)}"
        case _:
            assert_never(target)


def skip_record(s: ast.SkipRecord) -> str:
    return f"SKIP RECORD AT {literal(s.split.id)} {s.offset} ON SOURCE {name_text(s.name)}{reason_text(s.reason)}"


def rebuild_materialized_view(s: ast.RebuildMaterializedView) -> str:
    return f"REBUILD MATERIALIZED VIEW {name_text(s.name)}{' CASCADE' if s.is_cascade else ''}{reason_text(s.reason)}"


def rewind_source(s: ast.RewindSource) -> str:
    clauses = Clauses(f"REWIND SOURCE {name_text(s.name)} TO OPERATION {s.operation}").add(allow_text(s.allow))
    return clauses.add(reason_text(s.reason).lstrip()).text()


def undo_operation(s: ast.UndoOperation) -> str:
    clauses = Clauses(f"UNDO OPERATION {s.operation}").add(allow_text(s.allow))
    return clauses.add(reason_text(s.reason).lstrip()).text()


def alter_system_set(s: ast.AlterSystemSet) -> str:
    values = (s.value,) if s.value is not None else ()
    return f"ALTER SYSTEM SET {quoted(s.parameter)} = {parameter_text(values)}"


def set_parameter(s: ast.SetParameter) -> str:
    values = (s.value, *s.more_values) if s.value is not None else ()
    return f"SET {'LOCAL ' if s.is_local else ''}{quoted(s.parameter)} = {parameter_text(values)}"


def set_time_zone(s: ast.SetTimeZone) -> str:
    zone = "DEFAULT" if s.zone is None else s.zone.text if isinstance(s.zone, WordValue) else literal(s.zone.text)
    return f"SET {'LOCAL ' if s.is_local else ''}TIME ZONE {zone}"


def wait(s: ast.Wait) -> str:
    return f"WAIT {s.kind} {name_text(s.name)}" if s.kind is not None and s.name is not None else "WAIT"


def show_filter(s: ast.ShowObjects | ast.ShowColumns) -> str:
    if s.like is not None:
        return f" LIKE {literal(s.like)}"
    if s.ilike is not None:
        return f" ILIKE {literal(s.ilike)}"
    return f" WHERE {s.where}" if s.where is not None else ""


def show_objects(s: ast.ShowObjects) -> str:
    schema = f" FROM {quoted(s.schema)}" if s.schema is not None else ""
    return f"SHOW {s.kind}{schema}{show_filter(s)}"


_SPELLED = {"all": "ALL", "time zone": "TIME ZONE", "transaction isolation level": "TRANSACTION ISOLATION LEVEL"}


def show_parameter(s: ast.ShowParameter) -> str:
    return f"SHOW {_SPELLED.get(s.parameter) or '.'.join(quoted(part) for part in s.parameter.split('.'))}"
