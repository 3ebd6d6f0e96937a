"""Actions for the columns, constraints, watermarks, and INCLUDE and FORMAT clauses of sources and tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rw_sql.errors import DUPLICATE_CLAUSE, INVALID_EXPRESSION, SYNTAX_ERROR, SqlError, near_names
from rw_sql.format_words import ENCODES, FORMATS
from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.lexing.tokens import STRING
from rw_sql.syntax.parsing.actions.parts import expression, joined, refuse_twice, words
from rw_sql.syntax.statements.common import (
    ColumnDefinition,
    DataType,
    Expression,
    FormatEncode,
    IncludeColumn,
    Name,
    Option,
    TableConstraint,
    TextValue,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token

INCLUDED = (
    "key", "partition", "offset", "timestamp", "header", "payload", "topic", "file", "subject", "message_id_data",
    "attributes", "database_name", "schema_name", "table_name", "collection_name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class UntypedColumn:
    """A column that is written without a type. Another part of the statement must provide the type.

    ``computed`` is the column's expression after AS; None for a column without an expression.
    """

    token: Token
    computed: Expression | None = None


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The item ``*``, which stands for all columns of the upstream."""

    token: Token


Item = ColumnDefinition | UntypedColumn | Wildcard | TableConstraint | Watermark


@dataclass(frozen=True, slots=True)
class Columns:
    """A column list, separated into kinds of items."""

    columns: tuple[ColumnDefinition, ...]
    untyped: tuple[Token, ...]
    computed: tuple[UntypedColumn, ...]
    wildcard: int | None
    constraints: tuple[TableConstraint, ...]
    watermarks: tuple[Watermark, ...]


def columns(items: list[Item] | None = None) -> Columns:
    """Separates the items of the list by kind.

    Raises SqlError for a second ``*``, a second watermark, a second primary key, or a second column of the same name.
    """
    listed = items or []
    typed = [item for item in listed if isinstance(item, ColumnDefinition)]
    without_type = [item for item in listed if isinstance(item, UntypedColumn)]
    refuse_twice("column", [(c.name, c.span) for c in typed] + [(c.token.value, c.token.span) for c in without_type])
    untyped = tuple(item.token for item in without_type if item.computed is None)
    computed = tuple(item for item in without_type if item.computed is not None)
    wildcards = [at for at, item in enumerate(listed) if isinstance(item, Wildcard)]
    for second in [item for item in listed if isinstance(item, Wildcard)][1:]:
        raise SqlError(
            DUPLICATE_CLAUSE,
            "at most 1 wildcard is allowed in source definition",
            span=second.token.span,
            hint="omit the second *",
        )
    watermarks = tuple(item for item in listed if isinstance(item, Watermark))
    if len(watermarks) > 1:
        raise SqlError(
            DUPLICATE_CLAUSE,
            "only 1 watermark is allowed to be defined on source",
            span=watermarks[1].span,
            hint="omit the second WATERMARK",
        )
    constraints = tuple(item for item in listed if isinstance(item, TableConstraint))
    keys = [c.span for c in constraints if c.kind == "PRIMARY KEY"] + [c.span for c in typed if c.is_primary_key]
    if len(keys) > 1:
        raise SqlError(
            DUPLICATE_CLAUSE,
            "a second primary key is defined",
            span=max(keys, key=lambda k: k.start),
            hint="name all key columns in one: PRIMARY KEY (a_column, another)",
        )
    before = sum(isinstance(item, ColumnDefinition) for item in listed[: wildcards[0]]) if wildcards else None
    return Columns(tuple(typed), untyped, computed, before, constraints, watermarks)


def column(name: Token, data_type: DataType, *constraints: tuple[str, Any]) -> ColumnDefinition:
    given: dict[str, Any] = {}
    others: list[str] = []
    for at, (word, value) in enumerate(constraints):
        if word == "collation":
            if at:
                raise SqlError(
                    SYNTAX_ERROR,
                    "COLLATE must come directly after the type",
                    span=value.span,
                    hint='move COLLATE after the type: a_column VARCHAR COLLATE "C"',
                )
            others.append("COLLATE " + ".".join(quoted(part) for part in value.parts))
        elif word == "other_constraints":
            if value in others:
                raise SqlError(
                    DUPLICATE_CLAUSE,
                    f'column "{name.value}" has {value} twice',
                    span=name.span,
                    hint=f"omit one {value}",
                )
            others.append(value)
        elif word in given:
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'column "{name.value}" has two of the same constraint',
                span=name.span,
                hint="omit one of the two",
            )
        else:
            given[word] = value
    if given.get("generated") and given.get("default"):
        raise SqlError(
            DUPLICATE_CLAUSE,
            f'column "{name.value}" is both generated and defaulted',
            span=name.span,
            hint="omit AS or DEFAULT",
        )
    if given.get("generated") and given.get("field"):
        raise SqlError(
            DUPLICATE_CLAUSE,
            f'column "{name.value}" is both generated and read from field "{given["field"]}"',
            span=name.span,
            hint="omit FROM: AS computes it from the other columns",
        )
    if given.get("field") == name.value:
        del given["field"]
    if given.pop("is_null", False) and (given.get("is_not_null") or given.get("is_primary_key")):
        raise SqlError(
            DUPLICATE_CLAUSE,
            f'column "{name.value}" is both NULL and NOT NULL',
            span=name.span,
            hint="omit NULL or NOT NULL",
        )
    return ColumnDefinition(
        name=name.value, data_type=data_type, other_constraints=tuple(others), span=name.span, **given
    )


def untyped_column(name: Token, *constraints: tuple[str, Any]) -> UntypedColumn:
    if constraints and constraints[0][0] == "generated":
        return UntypedColumn(name, constraints[0][1])
    if constraints:
        raise SqlError(
            SYNTAX_ERROR,
            f'column "{name.value}" has no type',
            span=name.span,
            hint=f"write a type after the name: {quoted(name.value)} INT",
        )
    return UntypedColumn(name)


def wildcard(star: Token) -> Wildcard:
    return Wildcard(star)


def from_field(token: Token) -> tuple[str, str]:
    return "field", token.value


def generated_as(token: Token) -> tuple[str, Expression]:
    return "generated", expression(token)


def default_value(token: Token) -> tuple[str, Expression]:
    checked = expression(token)
    if checked.text.upper() == "NOT NULL":
        raise SqlError(
            SYNTAX_ERROR,
            "expected an expression, found: NOT NULL",
            span=token.span,
            hint="write an expression after DEFAULT",
        )
    return "default", checked


def not_null() -> tuple[str, bool]:
    return "is_not_null", True


def nullable() -> tuple[str, bool]:
    return "is_null", True


def primary_key() -> tuple[str, bool]:
    return "is_primary_key", True


def unique() -> tuple[str, str]:
    return "other_constraints", "UNIQUE"


def check(token: Token) -> tuple[str, str]:
    return "other_constraints", f"CHECK ({expression(token).text})"


def references(table: Name, listed: tuple[str, ...], *changes: str) -> tuple[str, str]:
    return "other_constraints", _references(table, listed, changes)


def _references(table: Name, listed: tuple[str, ...], changes: tuple[str, ...]) -> str:
    text = "REFERENCES " + ".".join(quoted(part) for part in table.parts)
    if listed:
        text += f" ({', '.join(quoted(column) for column in listed)})"
    refuse_twice("ON " + " or ON ".join(("DELETE", "UPDATE")), [(c.split()[1], table.span) for c in changes])
    return " ".join([text, *changes])


def on_change(on: Token, event: Token, action: str) -> str:
    return f"{on.upper} {event.upper} {action}"


def collation(name: Name) -> tuple[str, Name]:
    return "collation", name


def named_constraint(name: Token, constraint: tuple[str, Any]) -> tuple[str, str]:
    word, value = constraint
    texts = {"is_not_null": "NOT NULL", "is_null": "NULL", "is_primary_key": "PRIMARY KEY"}
    if word == "generated":
        text = f"AS {value.text}"
    elif word == "default":
        text = f"DEFAULT {value.text}"
    else:
        text = texts.get(word) or value
    return "other_constraints", f"CONSTRAINT {quoted(name.value)} {text}"


def table_primary_key(listed: tuple[Token, ...]) -> TableConstraint:
    return _of_columns("PRIMARY KEY", listed)


def table_unique(listed: tuple[Token, ...]) -> TableConstraint:
    return _of_columns("UNIQUE", listed)


def _of_columns(kind: str, listed: tuple[Token, ...]) -> TableConstraint:
    return TableConstraint(
        kind=kind,
        columns=tuple(token.value for token in listed),
        column_spans=tuple(token.span for token in listed),
        span=listed[0].span,
    )


def table_check(token: Token) -> TableConstraint:
    return TableConstraint(kind="CHECK", text=f"({expression(token).text})", span=token.span)


def table_foreign_key(
    listed: tuple[Token, ...], table: Name, referred: tuple[Token, ...], *changes: str
) -> TableConstraint:
    return replace(
        _of_columns("FOREIGN KEY", listed),
        text=_references(table, tuple(token.value for token in referred), changes),
        span=table.span,
    )


def named_table_constraint(name: Token, constraint: TableConstraint) -> TableConstraint:
    return replace(constraint, name=name.value, span=name.span)


def watermark(column_name: Token, text: Token, is_with_ttl: bool | None) -> Watermark:
    if not any(part.kind != STRING and part.value == column_name.value for part in text.parts):
        raise SqlError(
            INVALID_EXPRESSION,
            f'the watermark of column "{column_name.value}" must be computed from it',
            hint=f"write {column_name.text} - INTERVAL '5' SECOND",
            span=text.span,
        )
    return Watermark(
        column=column_name.value, expression=expression(text), is_with_ttl=bool(is_with_ttl), span=column_name.span
    )


def one_of(token: Token, known: tuple[str, ...], message: str) -> str:
    """Returns the entry of ``known`` that equals the word, ignoring case.

    Raises SqlError SYNTAX_ERROR if there is no such entry. The hint names the most similar word in ``known`` or, if no
    word is similar, all words in ``known``.
    """
    for word in known:
        if word.lower() == token.value.lower():
            return word
    near = near_names(token.value.lower(), [word.lower() for word in known])
    listed = f"write one of {', '.join(known)}" if known else f"write CONFIG (a_name) instead of {token.text}"
    hint = f"did you mean {near[0].upper()}?" if near else listed
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


def given_format(format_: Token, encode: Token, options: tuple[Option, ...], key_encode: str | None) -> FormatEncode:
    return FormatEncode(
        format=one_of(format_, FORMATS, f"expected {' | '.join(FORMATS)} after FORMAT"),
        encode=one_of(encode, ENCODES, f"expected {' | '.join(ENCODES)} after ENCODE"),
        options=options,
        key_encode=key_encode,
        span=joined(format_.span, encode.span),
    )


def format_options(listed: tuple[Option, ...] = ()) -> tuple[Option, ...]:
    return listed


def key_encode(token: Token | None = None) -> str | None:
    return one_of(token, ENCODES, f"expected {' | '.join(ENCODES)} after KEY ENCODE") if token is not None else None


_ROW_FORMATS = {
    "JSON": ("PLAIN", "JSON"),
    "UPSERT_JSON": ("UPSERT", "JSON"),
    "PROTOBUF": ("PLAIN", "PROTOBUF"),
    "DEBEZIUM_JSON": ("DEBEZIUM", "JSON"),
    "DEBEZIUM_MONGO_JSON": ("DEBEZIUM_MONGO", "JSON"),
    "DEBEZIUM_AVRO": ("DEBEZIUM", "AVRO"),
    "AVRO": ("PLAIN", "AVRO"),
    "UPSERT_AVRO": ("UPSERT", "AVRO"),
    "MAXWELL": ("MAXWELL", "JSON"),
    "CANAL_JSON": ("CANAL", "JSON"),
    "CSV": ("PLAIN", "CSV"),
    "BYTES": ("PLAIN", "BYTES"),
    "NATIVE": ("NATIVE", "NATIVE"),
}
_ROW_NEEDS = {"PROTOBUF": "message", "AVRO": "location", "UPSERT_AVRO": "location", "DEBEZIUM_AVRO": "registry"} | {
    "CSV": "delimiter"
}
_ROW_CLAUSES = {
    "message": "MESSAGE 'm' ROW SCHEMA LOCATION 'l'",
    "location": "ROW SCHEMA LOCATION [CONFLUENT SCHEMA REGISTRY] 'l'",
    "registry": "ROW SCHEMA LOCATION CONFLUENT SCHEMA REGISTRY 'l'",
    "delimiter": "[WITHOUT HEADER] DELIMITED BY ','",
}
RowSchema = tuple[str, tuple[Option, ...]]


def row_format(word: Token, schema: RowSchema | None) -> FormatEncode:
    """Converts RisingWave's legacy syntax ``ROW FORMAT`` to FORMAT and ENCODE."""
    known = one_of(word, tuple(_ROW_FORMATS), f"expected {' | '.join(_ROW_FORMATS)} after ROW FORMAT")
    needs = _ROW_NEEDS.get(known)
    kind = schema[0] if schema is not None else None
    if kind != needs and not (needs == "location" and kind == "registry"):
        wanted = _ROW_CLAUSES[needs] if needs else "nothing"
        raise SqlError(
            SYNTAX_ERROR,
            f"expected {wanted} after ROW FORMAT {known}",
            span=word.span,
            hint=f"write {wanted} after {known}" if needs else f"omit the text after {known}",
        )
    format_, encode = _ROW_FORMATS[known]
    return FormatEncode(format=format_, encode=encode, options=schema[1] if schema is not None else (), span=word.span)


def _text_option(key: str, token: Token) -> Option:
    return Option(key=key, value=TextValue(text=token.value, span=token.span), span=token.span)


def row_schema_location(is_registry: bool | None, location: Token) -> RowSchema:
    kind = "registry" if is_registry else "location"
    return kind, (_text_option(f"schema.{kind}", location),)


def row_message_location(message: Token, is_registry: bool | None, location: Token) -> RowSchema:
    key = "schema.registry" if is_registry else "schema.location"
    return "message", (_text_option("message", message), _text_option(key, location))


def row_delimiter(delimiter: Token, *, is_without_header: bool = False) -> RowSchema:
    if delimiter.value not in (",", "\t"):
        raise SqlError(
            SYNTAX_ERROR,
            f"the delimiter should be one of ',', E'\\t', found: {delimiter.text}",
            span=delimiter.span,
            hint="DELIMITED BY ','",
        )
    header = Option(key="without_header", value=TextValue(text="true" if is_without_header else "false"))
    return "delimiter", (_text_option("delimiter", delimiter), header)


def row_delimiter_without_header(delimiter: Token) -> RowSchema:
    return row_delimiter(delimiter, is_without_header=True)


COLUMN_RULES: dict[str, Callable[..., Any]] = {
    "columns": columns,
    "column": column,
    "untyped_column": untyped_column,
    "wildcard": wildcard,
    "from_field": from_field,
    "generated_as": generated_as,
    "default_value": default_value,
    "not_null": not_null,
    "nullable": nullable,
    "primary_key": primary_key,
    "unique": unique,
    "check": check,
    "references": references,
    "on_change": on_change,
    "change": words,
    "collation": collation,
    "named_constraint": named_constraint,
    "table_primary_key": table_primary_key,
    "table_unique": table_unique,
    "table_check": table_check,
    "table_foreign_key": table_foreign_key,
    "named_table_constraint": named_table_constraint,
    "watermark": watermark,
    "includes": includes,
    "include": include,
    "include_inner": include_inner,
    "include_alias": include_alias,
    "given_format": given_format,
    "format_options": format_options,
    "key_encode": key_encode,
    "row_format": row_format,
    "row_schema_location": row_schema_location,
    "row_message_location": row_message_location,
    "row_delimiter": row_delimiter,
    "row_delimiter_without_header": row_delimiter_without_header,
}
