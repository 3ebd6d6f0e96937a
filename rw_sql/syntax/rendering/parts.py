"""Renders the parts of statements as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from rw_sql.syntax.lexing.identifiers import literal, quoted
from rw_sql.syntax.rendering.type_names import canonical_type
from rw_sql.syntax.statements import (
    ColumnDefinition,
    ConnectionValue,
    IncludeColumn,
    Name,
    NullValue,
    NumberValue,
    Option,
    OptionKey,
    OptionValue,
    ParameterValue,
    SecretValue,
    TableConstraint,
    TextValue,
    Watermark,
    WordValue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.rendering.layout import Clauses
    from rw_sql.syntax.statements import FormatEncode


def name_text(name: Name) -> str:
    """Returns a dotted name, in which each part is quoted if necessary."""
    return ".".join(quoted(part) for part in name.parts)


def key_text(key: str) -> str:
    """An option's key. The parts of a key may be any words, so only special characters and capitals need quotes."""
    return ".".join(part if _is_plain(part) else _in_quotes(part) for part in key.split("."))


def _is_plain(part: str) -> bool:
    return part == part.lower() and part[:1].isidentifier() and part.replace("$", "_").isidentifier()


def _in_quotes(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def value_text(value: OptionValue | NullValue) -> str:
    """An option's value."""
    match value:
        case TextValue():
            return literal(value.text)
        case NumberValue() | WordValue():
            return value.text
        case NullValue():
            return "NULL"
        case SecretValue():
            return f"SECRET {name_text(value.secret)}" + (" AS FILE" if value.is_file else "")
        case ConnectionValue():
            return name_text(value.connection)
        case _:
            assert_never(value)


def option_text(option: Option) -> str:
    """``key = value``."""
    return f"{key_text(option.key)} = {value_text(option.value)}"


def options_text(options: Sequence[Option]) -> list[str]:
    """Returns each option as text."""
    return [option_text(option) for option in options]


def keys_text(keys: Sequence[OptionKey]) -> list[str]:
    """Returns each key as text."""
    return [key_text(key.key) for key in keys]


def given(flag: bool, words: str) -> str:
    """Returns the words with a leading space if the flag is true; otherwise the empty string."""
    return f" {words}" if flag else ""


def allow_text(words: Sequence[str]) -> str:
    """``ALLOW word, …``, if there are words."""
    return f"ALLOW {', '.join(words)}" if words else ""


def reason_text(reason: str | None) -> str:
    """`` REASON 'text'``, if there is a reason."""
    return f" REASON {literal(reason)}" if reason is not None else ""


def switches_text(**switches: str | bool | None) -> list[str]:
    """Returns the text of each switch whose value differs from its default. The caller passes None for a switch that
    has its default value."""
    shown = {True: "true", False: "false"}
    return [
        f"{name.upper()} = {shown[value] if isinstance(value, bool) else literal(value)}"
        for name, value in switches.items()
        if value is not None
    ]


def parameter_text(values: Sequence[ParameterValue]) -> str:
    """A parameter's values as text; ``DEFAULT`` if there are no values."""
    return ", ".join(value_text(value) for value in values) or "DEFAULT"


def column_text(column: ColumnDefinition) -> str:
    """A column with its constraints."""
    others = column.other_constraints
    is_collated = bool(others) and others[0].startswith("COLLATE ")
    text = " ".join([quoted(column.name), canonical_type(column.data_type), *others[:is_collated]])
    if column.field is not None:
        text += f" FROM {quoted(column.field)}"
    if column.generated is not None:
        text += f" AS {column.generated.text}"
    if column.default is not None:
        text += f" DEFAULT {column.default.text}"
    text += given(column.is_not_null, "NOT NULL") + given(column.is_primary_key, "PRIMARY KEY")
    return " ".join([text, *others[is_collated:]])


def constraint_text(constraint: TableConstraint) -> str:
    """A table constraint."""
    text = f"CONSTRAINT {quoted(constraint.name)} " if constraint.name is not None else ""
    text += constraint.kind
    if constraint.columns:
        text += f" ({', '.join(quoted(column) for column in constraint.columns)})"
    return text + (f" {constraint.text}" if constraint.text else "")


def watermark_text(watermark: Watermark) -> str:
    """``WATERMARK FOR column AS expression [WITH TTL]``."""
    text = f"WATERMARK FOR {quoted(watermark.column)} AS {watermark.expression.text}"
    return text + given(watermark.is_with_ttl, "WITH TTL")


def column_list(
    columns: Sequence[ColumnDefinition],
    names: Sequence[str],
    wildcard: int | None,
    constraints: Sequence[TableConstraint],
    watermarks: Sequence[Watermark],
) -> list[str]:
    """The items of a column list: the columns, with ``*`` at its position among them, then the constraints and the
    watermarks."""
    items = [column_text(column) for column in columns]
    if wildcard is not None:
        items.insert(wildcard, "*")
    items += [quoted(name) for name in names]
    items += [constraint_text(constraint) for constraint in constraints]
    return items + [watermark_text(watermark) for watermark in watermarks]


def include_text(include: IncludeColumn) -> str:
    """``INCLUDE kind ['inner' [type]] [AS alias]``."""
    text = f"INCLUDE {include.kind}"
    if include.inner is not None:
        text += f" {literal(include.inner)}"
    if include.inner_type is not None:
        text += f" {canonical_type(include.inner_type)}"
    return text + (f" AS {quoted(include.alias)}" if include.alias is not None else "")


def add_format(clauses: Clauses, format_: FormatEncode | None) -> None:
    """Adds ``FORMAT f ENCODE e [(options)] [KEY ENCODE k]``, if the statement has this clause."""
    if format_ is None:
        return
    head = f"FORMAT {format_.format} ENCODE {format_.encode}"
    if format_.options:
        clauses.listed(head, options_text(format_.options))
    else:
        clauses.add(head)
    if format_.key_encode is not None:
        clauses.add(f"KEY ENCODE {format_.key_encode}")
