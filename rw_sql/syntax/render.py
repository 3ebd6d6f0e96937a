"""Statement → canonical text: keywords upper, types canonical, quotes only where needed, options in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from rw_sql.syntax.names import literal, quoted
from rw_sql.syntax.statements import (
    AlterSourceUnsafeSet,
    AlterSystemSet,
    ColumnDefinition,
    Confirm,
    ConnectionValue,
    CreateMaterializedView,
    CreateSource,
    Describe,
    DropMaterializedView,
    DropSource,
    Explain,
    Flush,
    FormatEncode,
    IncludeColumn,
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
    Name,
    NullValue,
    NumberValue,
    Option,
    OptionKey,
    OptionValue,
    PauseAllSources,
    PauseSource,
    ResetSourceSplits,
    ResumeAllSources,
    ResumeSource,
    SecretValue,
    SetParameter,
    ShowCreate,
    ShowObjects,
    ShowSourceSplits,
    ShowUnsafeOperations,
    SplitEntry,
    SplitId,
    Statement,
    TextValue,
    WordValue,
)
from rw_sql.syntax.types import canonical_type

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDEST_LINE = 100
"""A statement that fits into this many characters is printed on one line."""


@dataclass(slots=True)
class _Piece:
    text: str
    items: list[str] | None = None
    comma: bool = False

    def flat(self) -> str:
        if self.items is None:
            return self.text
        return f"{self.text} ({', '.join(self.items)})".lstrip()

    def laid_out(self) -> str:
        flat = self.flat()
        if self.items is None or (len(self.items) < 3 and len(flat) <= WIDEST_LINE and "\n" not in flat):
            return flat
        return f"{self.text} (".lstrip() + "\n  " + ",\n  ".join(self.items) + "\n)"


class Clauses:
    """A statement's text in pieces, each of which may begin a line, with lists that may be broken over lines."""

    def __init__(self, head: str) -> None:
        self._pieces = [_Piece(head)]

    def add(self, text: str) -> Clauses:
        """A piece, if it is not empty."""
        if text:
            self._pieces.append(_Piece(text))
        return self

    def listed(self, before: str, items: Sequence[str], *, comma: bool = False) -> Clauses:
        """``before (items)``, if there are items; with ``comma``, one stands before it."""
        if items:
            self._pieces.append(_Piece(before, list(items), comma))
        return self

    def text(self) -> str:
        """On one line if that is short, else a clause a line and a list's item a line."""
        short = self._pieces[0].flat()
        for piece in self._pieces[1:]:
            short += (", " if piece.comma else " ") + piece.flat()
        if len(short) <= WIDEST_LINE and "\n" not in short:
            return short
        long = self._pieces[0].laid_out()
        for piece in self._pieces[1:]:
            long += ("," if piece.comma else "") + ("\n" if piece.text else " ") + piece.laid_out()
        return long


def render(statement: Statement) -> str:
    """The canonical text of a statement, without ``;``. Parsing it gives an equal statement."""
    match statement:
        case CreateSource():
            return _create_source(statement)
        case DropSource():
            return _drop("SOURCE", statement.if_exists, statement.name, statement.is_cascade)
        case DropMaterializedView():
            return _drop("MATERIALIZED VIEW", statement.if_exists, statement.name, statement.is_cascade)
        case CreateMaterializedView():
            return _create_materialized_view(statement)
        case AlterSourceUnsafeSet():
            return _alter_source_unsafe_set(statement)
        case PauseSource():
            return f"PAUSE SOURCE {name_text(statement.name)}{_reason(statement.reason)}"
        case PauseAllSources():
            return f"PAUSE ALL SOURCES{_reason(statement.reason)}"
        case ResumeSource():
            return f"RESUME SOURCE {name_text(statement.name)}{_reason(statement.reason)}"
        case ResumeAllSources():
            return f"RESUME ALL SOURCES{_reason(statement.reason)}"
        case ResetSourceSplits():
            return _reset_source_splits(statement)
        case InjectSourceOffsets():
            return _inject_source_offsets(statement)
        case AlterSystemSet():
            return f"ALTER SYSTEM SET {quoted(statement.parameter)} = {_parameter(statement.value)}"
        case SetParameter():
            return f"SET {quoted(statement.parameter)} = {_parameter(statement.value)}"
        case Confirm():
            return f"CONFIRM {literal(statement.token)}"
        case Flush():
            return "FLUSH"
        case Explain():
            return f"EXPLAIN {render(statement.statement)}"
        case ShowObjects():
            return _show_objects(statement)
        case ShowSourceSplits():
            return f"SHOW SOURCE SPLITS {name_text(statement.name)}"
        case ShowUnsafeOperations():
            return "SHOW UNSAFE OPERATIONS" + (f" FOR {name_text(statement.name)}" if statement.name else "")
        case ShowCreate():
            return f"SHOW CREATE {statement.kind} {name_text(statement.name)}"
        case Describe():
            return f"DESCRIBE {name_text(statement.name)}"
    raise TypeError(f"no statement of ours: {type(statement).__name__}")


def name_text(name: Name) -> str:
    """A dotted name, each part quoted where needed."""
    return ".".join(quoted(part) for part in name.parts)


def key_text(key: str) -> str:
    """An option's key. Its parts may be any words, so only odd characters and capitals need quotes."""
    return ".".join(part if part.isidentifier() and part == part.lower() else _quotes(part) for part in key.split("."))


def _quotes(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def value_text(value: OptionValue | NullValue) -> str:
    """An option's value as it is written."""
    match value:
        case TextValue():
            return literal(value.text)
        case NumberValue() | WordValue():
            return value.text
        case NullValue():
            return "NULL"
        case SecretValue():
            return f"secret {name_text(value.secret)}" + (" AS FILE" if value.is_file else "")
        case ConnectionValue():
            return name_text(value.connection)
        case _:
            assert_never(value)


def option_text(option: Option) -> str:
    """``key = value``."""
    return f"{key_text(option.key)} = {value_text(option.value)}"


def _options(options: Sequence[Option]) -> list[str]:
    return [option_text(option) for option in options]


def _keys(keys: Sequence[OptionKey]) -> list[str]:
    return [key_text(key.key) for key in keys]


def _given(flag: bool, words: str) -> str:
    return f" {words}" if flag else ""


def _reason(reason: str | None) -> str:
    return f" REASON {literal(reason)}" if reason is not None else ""


def column_text(column: ColumnDefinition) -> str:
    """A column with its constraints."""
    text = f"{quoted(column.name)} {canonical_type(column.data_type)}"
    if column.generated is not None:
        text += f" AS {column.generated.text}"
    if column.default is not None:
        text += f" DEFAULT {column.default.text}"
    return text + _given(column.is_not_null, "NOT NULL") + _given(column.is_primary_key, "PRIMARY KEY")


def include_text(include: IncludeColumn) -> str:
    """``INCLUDE kind ['inner' [type]] [AS alias]``."""
    text = f"INCLUDE {include.kind}"
    if include.inner is not None:
        text += f" {literal(include.inner)}"
    if include.inner_type is not None:
        text += f" {canonical_type(include.inner_type)}"
    return text + (f" AS {quoted(include.alias)}" if include.alias is not None else "")


def _format(clauses: Clauses, format_: FormatEncode | None) -> None:
    if format_ is None:
        return
    head = f"FORMAT {format_.format} ENCODE {format_.encode}"
    if format_.options:
        clauses.listed(head, _options(format_.options))
    else:
        clauses.add(head)
    if format_.key_encode is not None:
        clauses.add(f"KEY ENCODE {format_.key_encode}")


def _create_source(s: CreateSource) -> str:
    head = f"CREATE{_given(s.is_temporary, 'TEMPORARY')} SOURCE{_given(s.if_not_exists, 'IF NOT EXISTS')}"
    clauses = Clauses(f"{head} {name_text(s.name)}")
    clauses.listed("", [column_text(column) for column in s.columns])
    for include in s.include:
        clauses.add(include_text(include))
    clauses.listed("WITH", _options(s.options))
    _format(clauses, s.format)
    return clauses.text()


def _drop(kind: str, if_exists: bool, name: Name, is_cascade: bool) -> str:
    return f"DROP {kind}{_given(if_exists, 'IF EXISTS')} {name_text(name)}{_given(is_cascade, 'CASCADE')}"


def _create_materialized_view(s: CreateMaterializedView) -> str:
    clauses = Clauses(f"CREATE MATERIALIZED VIEW{_given(s.if_not_exists, 'IF NOT EXISTS')} {name_text(s.name)}")
    clauses.listed("", [quoted(column) for column in s.columns])
    clauses.listed("WITH", _options(s.options))
    clauses.add(f"AS {s.query.text}")
    clauses.add("EMIT ON WINDOW CLOSE" if s.is_emit_on_window_close else "")
    return clauses.text()


def _switches(**given: str | bool | None) -> list[str]:
    """Those switches that differ from their default, which the caller leaves None."""
    shown = {True: "true", False: "false"}
    return [
        f"{name.upper()} = {shown[value] if isinstance(value, bool) else literal(value)}"
        for name, value in given.items()
        if value is not None
    ]


def _alter_source_unsafe_set(s: AlterSourceUnsafeSet) -> str:
    clauses = Clauses(f"ALTER SOURCE {name_text(s.name)} UNSAFE")
    clauses.listed("SET", _options(s.set_options))
    clauses.listed("UNSET", _keys(s.unset_options), comma=bool(s.set_options))
    clauses.listed("WITH", _switches(validate=None if s.is_validated else False))
    return clauses.add(_reason(s.reason).lstrip()).text()


def _for_splits(clauses: Clauses, splits: Sequence[SplitId]) -> None:
    clauses.listed("FOR SPLITS", [literal(split.id) for split in splits])


def _reset_source_splits(s: ResetSourceSplits) -> str:
    clauses = Clauses(f"RESET SOURCE SPLITS {name_text(s.name)}")
    _for_splits(clauses, s.splits)
    switches = _switches(
        rediscover=None if s.is_rediscovering else False,
        forget_offsets=True if s.is_forgetting_offsets else None,
        validate=None if s.is_validated else False,
    )
    return clauses.listed("WITH", switches).add(_reason(s.reason).lstrip()).text()


def _inject_source_offsets(s: InjectSourceOffsets) -> str:
    clauses = Clauses(f"INJECT SOURCE OFFSETS {name_text(s.name)}")
    if isinstance(s.target, InjectValues):
        clauses.listed("VALUES", [_entry(entry) for entry in s.target.entries])
    else:
        clauses.add(_target(s.target))
    _for_splits(clauses, s.splits)
    clauses.add(f"ALLOW {', '.join(s.allow)}" if s.allow else "")
    switches = _switches(
        convention=None if s.convention == "next" else s.convention, validate=None if s.is_validated else False
    )
    return clauses.listed("WITH", switches).add(_reason(s.reason).lstrip()).text()


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


def _parameter(value: TextValue | NumberValue | WordValue | None) -> str:
    return "DEFAULT" if value is None else value_text(value)


def _show_objects(s: ShowObjects) -> str:
    text = f"SHOW {s.kind}"
    if s.schema is not None:
        text += f" FROM {quoted(s.schema)}"
    if s.like is not None:
        text += f" LIKE {literal(s.like)}"
    if s.ilike is not None:
        text += f" ILIKE {literal(s.ilike)}"
    return text + (f" WHERE {s.where}" if s.where is not None else "")
