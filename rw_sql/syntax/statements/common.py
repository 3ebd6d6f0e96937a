"""Defines the parts of statements: names, options, columns, formats. All of these objects are frozen. Equality ignores
their positions in the text (spans)."""

from __future__ import annotations

from dataclasses import dataclass, field

from rw_sql.errors import Span
from rw_sql.syntax.lexing.identifiers import PUBLIC, key_parts

NOWHERE = Span(start=0, end=0, line=1, column=1)


def at() -> Span:
    """Declares a field that contains the position of a statement, or of a part of a statement, in the text. The field
    is ignored when statements are compared for equality."""
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement. Statements with the same meaning are equal, regardless of their positions in the text."""

    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name of one or more parts, folded to lower case unless quoted: ``orders``, ``public.orders``."""

    parts: tuple[str, ...]
    span: Span = at()

    @property
    def last(self) -> str:
        """The object's name without schema."""
        return self.parts[-1]

    @property
    def schema(self) -> str | None:
        """The schema that the statement writes before the name; None if there is none."""
        return self.parts[-2] if len(self.parts) > 1 else None

    @property
    def key(self) -> str:
        """The object's name in the catalog. The name has no schema for ``public``; otherwise, it is ``schema.name``."""
        return ".".join(self.parts[1:] if len(self.parts) == 2 and self.parts[0] == PUBLIC else self.parts)

    @staticmethod
    def of(key: str, span: Span = NOWHERE) -> Name:
        """Returns the name of the object that has this key in the catalog."""
        return Name(parts=key_parts(key), span=span)

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataType:
    """A type in canonical form: ``name`` is upper case and canonical (``CHARACTER VARYING``, ``STRUCT``, ``MAP``).

    ``arguments`` are numbers such as precision and scale. An array has the ``name`` ``ARRAY`` and an ``element``, a map
    has a ``key`` and a ``value``, and a struct has ``fields``.
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
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression as canonical text. ``sql_reader`` has checked that the text is exactly one expression."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query's text as written, without surrounding white space. ``sql_reader`` has checked that the text is exactly
    one query.

    Two queries with equal ``words`` are equal, because layout, comments and the case of keywords do not matter.
    """

    text: str = field(compare=False)
    words: tuple[str, ...] = field(default=(), repr=False)
    span: Span = at()

    def __post_init__(self) -> None:
        if not self.words:
            object.__setattr__(self, "words", (self.text,))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextValue:
    """A quoted option value."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberValue:
    """A number as written, including its sign."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class WordValue:
    """An unquoted word: ``true``, ``false`` or a name."""

    text: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class NullValue:
    """``NULL``."""

    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretValue:
    """``SECRET name [AS FILE]``: a reference to a secret, without the secret's value."""

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
    """``key = value``. The key is folded and unquoted: ``properties.bootstrap.server``.

    ``key_span`` is the key's position; NOWHERE for an option that does not come from a parsed text.
    """

    key: str
    value: OptionValue
    span: Span = at()
    key_span: Span = at()

    @property
    def key_place(self) -> Span:
        """The position to report for an error in the key."""
        return self.key_span if self.key_span.end else self.span

    @property
    def value_place(self) -> Span:
        """The position to report for an error in the value."""
        return self.value.span if self.value.span.end else self.span

    @property
    def places(self) -> tuple[Span, ...]:
        """All positions to which an error about the option may refer."""
        return self.span, self.key_place, self.value_place


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionKey:
    """An option's key without a value, as UNSET lists it."""

    key: str
    span: Span = at()

    @property
    def key_place(self) -> Span:
        """The position to report for an error in the key."""
        return self.span


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatEncode:
    """``FORMAT f ENCODE e [(options)] [KEY ENCODE k]``. The words after FORMAT and ENCODE are in upper case."""

    format: str
    encode: str
    options: tuple[Option, ...] = ()
    key_encode: str | None = None
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcTable:
    """``FROM source TABLE 'schema.table'``: one table of a CDC source."""

    source: Name
    table: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column of a source or table; ``generated`` is the expression of ``AS expr``.

    ``field`` is the name in ``FROM field``: the record field from which a table's column is read, if its name differs
    from the column's name.

    ``other_constraints`` contains UNIQUE, CHECK, REFERENCES, COLLATE and named constraints as canonical text. rw_sql
    parses these constraints, but does not enforce them.
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
    """``[CONSTRAINT name] PRIMARY KEY (columns)``, or another constraint, which is parsed but not enforced.

    ``kind`` is PRIMARY KEY, UNIQUE, CHECK or FOREIGN KEY; ``text`` is the text after the columns.
    """

    kind: str
    columns: tuple[str, ...] = ()
    name: str | None = None
    text: str | None = None
    span: Span = at()
    column_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """``WATERMARK FOR column AS expression [WITH TTL]``."""

    column: str
    expression: Expression
    is_with_ttl: bool = False
    span: Span = at()
