"""The parts of statements: names, options, columns, formats. All frozen; spans never count in equality."""

from __future__ import annotations

from dataclasses import dataclass, field

from rw_sql.errors import Span

NOWHERE = Span(start=0, end=0, line=1, column=1)


def at() -> Span:
    """A span field of a statement or one of its parts: where it stands in the text; equality ignores it."""
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement. Two are equal if they mean the same, wherever they stood."""

    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name of one or more parts, folded to lower case unless it was quoted: ``orders``, ``public.orders``."""

    parts: tuple[str, ...]
    span: Span = at()

    @property
    def last(self) -> str:
        """The object's own name."""
        return self.parts[-1]

    @property
    def schema(self) -> str | None:
        """The schema before it, if one is written."""
        return self.parts[-2] if len(self.parts) > 1 else None

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataType:
    """A type in canonical form: ``name`` is upper case and canonical (``CHARACTER VARYING``, ``STRUCT``, ``MAP``).

    ``arguments`` are precision and scale; ``element`` is an array's element (``name`` is then ``ARRAY``); ``key`` and
    ``value`` are a map's; ``fields`` a struct's.
    """

    name: str
    arguments: tuple[int, ...] = ()
    element: DataType | None = None
    key: DataType | None = None
    value: DataType | None = None
    fields: tuple[StructField, ...] = ()
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class StructField:
    """One field of a struct type."""

    name: str
    data_type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression in canonical text, checked by sqlglot to be exactly one expression."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query's text, as written but for outer space; checked by sqlglot to be exactly one query."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextValue:
    """A quoted option value."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberValue:
    """A number as it was written, sign included."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class WordValue:
    """A bare word: ``true``, ``false`` or a name."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class NullValue:
    """``NULL``."""

    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretValue:
    """``SECRET name [AS FILE]``: a reference, never a value."""

    secret: Name
    is_file: bool = False
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionValue:
    """``connection = name``: a reference to a connection."""

    connection: Name
    span: Span = at()


OptionValue = TextValue | NumberValue | WordValue | SecretValue | ConnectionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """``key = value``. The key is folded and unquoted: ``properties.bootstrap.server``."""

    key: str
    value: OptionValue
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionKey:
    """A bare option key, as UNSET lists them."""

    key: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatEncode:
    """``FORMAT f ENCODE e [(options)] [KEY ENCODE k]``; words are upper case."""

    format: str
    encode: str
    options: tuple[Option, ...] = ()
    key_encode: str | None = None
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcTable:
    """``FROM source TABLE 'schema.table'``: one table out of a CDC source."""

    source: Name
    table: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column of a source or table; ``generated`` holds the expression of ``AS expr``.

    ``field`` is what ``FROM field`` names: the field of a record that a table's column is read from, where its name is
    another; a column is read from the field of its own name otherwise.

    ``other_constraints`` are in canonical text: UNIQUE, CHECK, REFERENCES, COLLATE and constraints with names. They
    are understood and enforced nowhere.
    """

    name: str
    data_type: DataType
    field: str | None = None
    generated: Expression | None = None
    default: Expression | None = None
    is_not_null: bool = False
    is_primary_key: bool = False
    other_constraints: tuple[str, ...] = ()
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeColumn:
    """``INCLUDE kind ['inner' [type]] [AS alias]``; ``kind`` is lower case: key, partition, offset, ..."""

    kind: str
    inner: str | None = None
    inner_type: DataType | None = None
    alias: str | None = None
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConstraint:
    """``[CONSTRAINT name] PRIMARY KEY (columns)``, or another one as text, which is understood and enforced nowhere.

    ``kind`` is PRIMARY KEY, UNIQUE, CHECK or FOREIGN KEY; ``text`` is what follows the columns.
    """

    kind: str
    columns: tuple[str, ...] = ()
    name: str | None = None
    text: str | None = None
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """``WATERMARK FOR column AS expression [WITH TTL]``."""

    column: str
    expression: Expression
    is_with_ttl: bool = False
    span: Span = at()
