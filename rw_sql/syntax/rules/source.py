"""Statements about sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import DUPLICATE_CLAUSE, INVALID_OPTION, SYNTAX_ERROR, SqlError, near_names
from rw_sql.syntax.rules.parts import expression, joined, read_switches, refuse_twice
from rw_sql.syntax.statements.common import (
    ColumnDefinition,
    DataType,
    Expression,
    FormatEncode,
    IncludeColumn,
    Name,
    NullValue,
    NumberValue,
    Option,
    OptionKey,
    TextValue,
)
from rw_sql.syntax.statements.source import (
    AlterSourceUnsafeSet,
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
    SplitEntry,
    SplitId,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.scan import Token

FORMATS = ("NATIVE", "NONE", "DEBEZIUM", "DEBEZIUM_MONGO", "MAXWELL", "CANAL", "UPSERT", "PLAIN")
ENCODES = ("AVRO", "TEXT", "BYTES", "CSV", "PROTOBUF", "JSON", "TEMPLATE", "PARQUET", "NATIVE", "NONE")
INCLUDED = (
    "key", "partition", "offset", "timestamp", "header", "payload", "file", "subject", "message_id_data",
    "database_name", "collection_name",
)  # fmt: skip


def create_source(
    is_temporary: bool | None,
    if_not_exists: bool | None,
    name: Name,
    columns: tuple[ColumnDefinition, ...],
    include: tuple[IncludeColumn, ...],
    options: tuple[Option, ...],
    format_encode: FormatEncode | None,
) -> CreateSource:
    return CreateSource(
        name=name,
        if_not_exists=bool(if_not_exists),
        is_temporary=bool(is_temporary),
        columns=columns,
        include=include,
        options=options,
        format=format_encode,
    )


def columns(listed: list[ColumnDefinition] | None = None) -> tuple[ColumnDefinition, ...]:
    refuse_twice("column", [(c.name, c.span) for c in listed or ()])
    return tuple(listed or ())


def column(name: Token, data_type: DataType, *constraints: tuple[str, Any]) -> ColumnDefinition:
    given: dict[str, Any] = {}
    for word, value in constraints:
        if word in given:
            raise SqlError(DUPLICATE_CLAUSE, f'column "{name.value}" has two of the same constraint', span=name.span)
        given[word] = value
    if "generated" in given and "default" in given:
        raise SqlError(DUPLICATE_CLAUSE, f'column "{name.value}" is both generated and defaulted', span=name.span)
    return ColumnDefinition(name=name.value, data_type=data_type, span=name.span, **given)


def generated_as(token: Token) -> tuple[str, Expression]:
    return "generated", expression(token)


def default_value(token: Token) -> tuple[str, Expression]:
    return "default", expression(token)


def not_null() -> tuple[str, bool]:
    return "is_not_null", True


def primary_key() -> tuple[str, bool]:
    return "is_primary_key", True


def one_of(token: Token, known: tuple[str, ...], message: str) -> str:
    """The word as listed in ``known``, whatever its case. Raises SqlError SYNTAX_ERROR listing near or all words."""
    for word in known:
        if word.lower() == token.value.lower():
            return word
    near = near_names(token.value.lower(), [word.lower() for word in known])
    hint = f"did you mean {near[0].upper()}?" if near else f"one of {', '.join(known)}"
    raise SqlError(SYNTAX_ERROR, f"{message}, found: {token.text}", hint=hint, span=token.span)


def includes(*listed: IncludeColumn) -> tuple[IncludeColumn, ...]:
    return listed


def include(kind: Token, inner: tuple[str | None, DataType | None], alias: str | None, _comma: None) -> IncludeColumn:
    return IncludeColumn(
        kind=one_of(kind, INCLUDED, "expected the name of an additional column"),
        inner=inner[0],
        inner_type=inner[1],
        alias=alias,
        span=kind.span,
    )


def include_inner(text: Token | None = None, data_type: DataType | None = None) -> tuple[str | None, DataType | None]:
    return (text.value if text is not None else None), data_type


def include_alias(token: Token | None = None) -> str | None:
    return token.value if token is not None else None


def format_encode(
    format_: Token | None = None,
    encode: Token | None = None,
    options: tuple[Option, ...] = (),
    key_encode: str | None = None,
) -> FormatEncode | None:
    if format_ is None or encode is None:
        return None
    return FormatEncode(
        format=one_of(format_, FORMATS, "expected a format after FORMAT"),
        encode=one_of(encode, ENCODES, "expected an encoding after ENCODE"),
        options=options,
        key_encode=key_encode,
        span=joined(format_.span, encode.span),
    )


def format_options(listed: tuple[Option, ...] = ()) -> tuple[Option, ...]:
    return listed


def key_encode(token: Token | None = None) -> str | None:
    return one_of(token, ENCODES, "expected an encoding after KEY ENCODE") if token is not None else None


def drop_source(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropSource:
    return DropSource(name=name, if_exists=bool(if_exists), is_cascade=bool(is_cascade))


Changes = tuple[tuple[Option, ...], tuple[OptionKey, ...]]


def unsafe_set(options: tuple[Option, ...]) -> Changes:
    return options, ()


def unsafe_unset(keys: tuple[OptionKey, ...]) -> Changes:
    return (), keys


def unsafe_set_and_unset(options: tuple[Option, ...], keys: tuple[OptionKey, ...]) -> Changes:
    refuse_twice("option", [(o.key, o.span) for o in options] + [(key.key, key.span) for key in keys])
    return options, keys


def alter_source_unsafe_set(
    name: Name, changes: Changes, switches: tuple[Option, ...], reason: str | None
) -> AlterSourceUnsafeSet:
    read = read_switches(switches, {"validate": True})
    return AlterSourceUnsafeSet(
        name=name, set_options=changes[0], unset_options=changes[1], is_validated=read["validate"], reason=reason
    )


def pause_source(name: Name, reason: str | None) -> PauseSource:
    return PauseSource(name=name, reason=reason)


def pause_all_sources(reason: str | None) -> PauseAllSources:
    return PauseAllSources(reason=reason)


def resume_source(name: Name, reason: str | None) -> ResumeSource:
    return ResumeSource(name=name, reason=reason)


def resume_all_sources(reason: str | None) -> ResumeAllSources:
    return ResumeAllSources(reason=reason)


def reset_source_splits(
    name: Name, splits: tuple[SplitId, ...], switches: tuple[Option, ...], reason: str | None
) -> ResetSourceSplits:
    read = read_switches(switches, {"rediscover": True, "forget_offsets": False, "validate": True})
    return ResetSourceSplits(
        name=name,
        splits=splits,
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
    read = read_switches(switches, {"convention": ("next", "last_seen"), "validate": True})
    return InjectSourceOffsets(
        name=name,
        target=target,
        splits=splits,
        allow=allow,
        convention=read["convention"],
        is_validated=read["validate"],
        reason=reason,
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
    return InjectToOffset(offset=_whole(number), span=number.span)


def inject_to_timestamp(text: Token) -> InjectToTimestamp:
    return InjectToTimestamp(timestamp=text.value, span=text.span)


def inject_shift(number: Token) -> InjectShift:
    return InjectShift(records=_whole(number), span=number.span)


def inject_back(text: Token) -> InjectBack:
    return InjectBack(interval=text.value, span=text.span)


def _whole(token: Token) -> int:
    digits = token.value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise SqlError(INVALID_OPTION, f"expected a whole number, found: {token.text}", span=token.span)
    return int(token.value)


def allow(*words: Token) -> tuple[str, ...]:
    refuse_twice("ALLOW", [(word.upper, word.span) for word in words])
    return tuple(word.upper for word in words)


SOURCE_RULES: dict[str, Callable[..., Any]] = {
    "create_source": create_source,
    "columns": columns,
    "column": column,
    "generated_as": generated_as,
    "default_value": default_value,
    "not_null": not_null,
    "primary_key": primary_key,
    "includes": includes,
    "include": include,
    "include_inner": include_inner,
    "include_alias": include_alias,
    "format_encode": format_encode,
    "format_options": format_options,
    "key_encode": key_encode,
    "drop_source": drop_source,
    "unsafe_set": unsafe_set,
    "unsafe_unset": unsafe_unset,
    "unsafe_set_and_unset": unsafe_set_and_unset,
    "alter_source_unsafe_set": alter_source_unsafe_set,
    "pause_source": pause_source,
    "pause_all_sources": pause_all_sources,
    "resume_source": resume_source,
    "resume_all_sources": resume_all_sources,
    "reset_source_splits": reset_source_splits,
    "inject_source_offsets": inject_source_offsets,
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
}
