"""Actions for the statements about sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, SqlError
from rw_sql.syntax.lexing.identifiers import quoted, sql_name
from rw_sql.syntax.parsing.actions.formats import connector_of, require_format
from rw_sql.syntax.parsing.actions.parts import OFFSET_DIGITS, dropped, joined, read_switches, refuse_twice, whole
from rw_sql.syntax.statements.source import (
    CreateSource,
    DropSource,
    InjectBack,
    InjectFromCheckpoint,
    InjectFromFile,
    InjectFromGroup,
    InjectFromSource,
    InjectShift,
    InjectSourceOffsets,
    InjectTarget,
    InjectTo,
    InjectToOffset,
    InjectToTimestamp,
    InjectValues,
    PauseAllSources,
    PauseSource,
    ResetSourceSplits,
    ResumeAllSources,
    ResumeSource,
    RewindSource,
    SkipRecord,
    SplitEntry,
    SplitId,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.parsing.actions.columns import Columns, UntypedColumn
    from rw_sql.syntax.statements.common import (
        CdcTable,
        FormatEncode,
        IncludeColumn,
        Name,
        NullValue,
        NumberValue,
        Option,
        TextValue,
    )


def create_source(
    or_replace: bool | None,
    is_temporary: bool | None,
    if_not_exists: bool | None,
    name: Name,
    columns: Columns,
    include: tuple[IncludeColumn, ...],
    options: tuple[Option, ...],
    format_encode: FormatEncode | None,
    cdc_table: CdcTable | None,
) -> CreateSource:
    _refuse_computed(columns.computed)
    connector = connector_of(options) or ""
    if connector == "webhook":
        raise SqlError(
            SYNTAX_ERROR,
            "source with webhook connector is not supported",
            hint="please use the CREATE TABLE ... WITH ... statement instead",
            span=name.span,
        )
    if "-cdc" in connector and (columns.columns or columns.untyped or columns.constraints):
        raise SqlError(
            SYNTAX_ERROR,
            "CDC source cannot define columns and constraints",
            span=name.span,
            hint=f"omit the columns: CREATE TABLE … FROM {sql_name(name.key)} TABLE '…' names them",
        )
    if cdc_table is None:
        require_format(connector, format_encode, is_source=True, options=options)
    elif format_encode is not None:
        raise SqlError(
            SYNTAX_ERROR,
            "FORMAT comes from the CDC source",
            span=format_encode.span,
            hint="omit FORMAT … ENCODE …",
        )
    require_types(columns.untyped)
    return CreateSource(
        name=name,
        if_not_exists=bool(if_not_exists),
        is_temporary=bool(is_temporary),
        or_replace=bool(or_replace),
        columns=columns.columns,
        wildcard=columns.wildcard,
        constraints=columns.constraints,
        watermarks=columns.watermarks,
        include=include,
        options=options,
        format=format_encode,
        cdc_table=cdc_table,
    )


def _refuse_computed(computed: tuple[UntypedColumn, ...]) -> None:
    """Raises SqlError SYNTAX_ERROR if a computed column has no type."""
    for column in computed:
        name, written = quoted(column.token.value), column.computed.text if column.computed is not None else "…"
        is_clock = written.upper().replace(" ", "") in _CLOCKS
        value = "current_timestamp()" if is_clock else written
        more = f"; for the record's time: INCLUDE timestamp AS {name}" if is_clock else ""
        raise SqlError(
            SYNTAX_ERROR,
            f'column "{column.token.value}": a source has no computed columns',
            span=column.token.span,
            hint=f"omit {name}; in a view: SELECT *, {value} AS {name}{more}",
        )


_CLOCKS = frozenset({"PROCTIME()", "NOW()", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP()", "LOCALTIMESTAMP"})


def require_types(untyped: tuple[Token, ...]) -> None:
    """Raises SqlError SYNTAX_ERROR if a column has no type."""
    for token in untyped:
        raise SqlError(
            SYNTAX_ERROR,
            f'column "{token.value}" has no type',
            span=token.span,
            hint=f"write a type after the name: {quoted(token.value)} INT",
        )


def drop_source(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropSource:
    return DropSource(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def pause_source(name: Name, reason: str | None) -> PauseSource:
    return PauseSource(name=name, reason=reason)


def pause_all_sources(reason: str | None) -> PauseAllSources:
    return PauseAllSources(reason=reason)


def resume_source(name: Name, reason: str | None) -> ResumeSource:
    return ResumeSource(name=name, reason=reason)


def resume_all_sources(reason: str | None) -> ResumeAllSources:
    return ResumeAllSources(reason=reason)


def reset_source_splits(
    name: Name,
    splits: tuple[SplitId, ...],
    allow: tuple[str, ...],
    switches: tuple[Option, ...],
    reason: str | None,
) -> ResetSourceSplits:
    read = read_switches(switches, {"rediscover": True, "forget_offsets": False, "validate": True})
    return ResetSourceSplits(
        name=name,
        splits=splits,
        allow=allow,
        is_rediscovering=read["rediscover"],
        is_forgetting_offsets=read["forget_offsets"],
        is_validated=read["validate"],
        reason=reason,
    )


def inject_source_offsets(
    name: Name,
    target: InjectTarget,
    splits: tuple[SplitId, ...],
    allow: tuple[str, ...],
    switches: tuple[Option, ...],
    reason: str | None,
) -> InjectSourceOffsets:
    convention, is_validated = _inject_switches(switches)
    return InjectSourceOffsets(
        name=name,
        target=target,
        splits=splits,
        allow=allow,
        convention=convention,
        is_validated=is_validated,
        reason=reason,
    )


def _inject_switches(switches: tuple[Option, ...]) -> tuple[str, bool]:
    read = read_switches(switches, {"convention": ("next", "last_seen"), "validate": True})
    return read["convention"], read["validate"]


def skip_record(split: SplitId, offset: Token, name: Name, reason: str | None) -> SkipRecord:
    return SkipRecord(split=split, offset=whole(offset, OFFSET_DIGITS), name=name, reason=reason)


def rewind_source(name: Name, operation: Token, allow: tuple[str, ...], reason: str | None) -> RewindSource:
    return RewindSource(
        name=name, operation=whole(operation), allow=allow, reason=reason, operation_span=operation.span
    )


def split_entry(split: SplitId, value: NumberValue | TextValue | NullValue) -> SplitEntry:
    return SplitEntry(split=split, value=value)


def inject_values(entries: list[SplitEntry]) -> InjectValues:
    refuse_twice("split", [(entry.split.id, entry.split.span) for entry in entries])
    return InjectValues(entries=tuple(entries), span=joined(entries[0].split.span, entries[-1].split.span))


def inject_from_file(path: Token) -> InjectFromFile:
    return InjectFromFile(path=path.value, span=path.span)


def inject_from_group(group: Token) -> InjectFromGroup:
    return InjectFromGroup(group=group.value, span=group.span)


def inject_from_checkpoint(path: Token) -> InjectFromCheckpoint:
    return InjectFromCheckpoint(path=path.value, span=path.span)


def inject_from_source(source: Name) -> InjectFromSource:
    return InjectFromSource(source=source, span=source.span)


def inject_to_earliest() -> InjectTo:
    return InjectTo(where="earliest")


def inject_to_latest() -> InjectTo:
    return InjectTo(where="latest")


def inject_to_offset(number: Token) -> InjectToOffset:
    return InjectToOffset(offset=whole(number), span=number.span)


def inject_to_timestamp(text: Token) -> InjectToTimestamp:
    return InjectToTimestamp(timestamp=text.value, span=text.span)


def inject_shift(number: Token) -> InjectShift:
    return InjectShift(records=whole(number), span=number.span)


def inject_back(text: Token) -> InjectBack:
    return InjectBack(interval=text.value, span=text.span)


def allow(*words: Token) -> tuple[str, ...]:
    refuse_twice("ALLOW", [(word.upper, word.span) for word in words])
    return tuple(word.upper for word in words)


SOURCE_RULES: dict[str, Callable[..., Any]] = {
    "create_source": create_source,
    "drop_source": drop_source,
    "pause_source": pause_source,
    "pause_all_sources": pause_all_sources,
    "resume_source": resume_source,
    "resume_all_sources": resume_all_sources,
    "reset_source_splits": reset_source_splits,
    "inject_source_offsets": inject_source_offsets,
    "skip_record": skip_record,
    "rewind_source": rewind_source,
    "split_entry": split_entry,
    "inject_values": inject_values,
    "inject_from_file": inject_from_file,
    "inject_from_group": inject_from_group,
    "inject_from_checkpoint": inject_from_checkpoint,
    "inject_from_source": inject_from_source,
    "inject_to_earliest": inject_to_earliest,
    "inject_to_latest": inject_to_latest,
    "inject_to_offset": inject_to_offset,
    "inject_to_timestamp": inject_to_timestamp,
    "inject_shift": inject_shift,
    "inject_back": inject_back,
    "allow": allow,
    "allow_rows": allow,
}
