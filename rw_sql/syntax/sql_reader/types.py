"""Reads types inside queries, with RisingWave's or Spark's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import UNSUPPORTED_TYPE, SqlError, near_names
from rw_sql.syntax.lexing.tokens import NUMBER, WORD, Token
from rw_sql.syntax.sql_reader.cursor import Cursor

if TYPE_CHECKING:
    from collections.abc import Collection

_OF_OTHERS = {
    "binary": "bytea", "blob": "bytea", "byte": "smallint", "bytes": "bytea", "clob": "varchar",
    "datetime": "timestamp", "float32": "real", "float64": "double", "int16": "smallint", "int32": "int",
    "int64": "bigint", "long": "bigint", "money": "numeric", "number": "numeric", "short": "smallint",
    "timestamp_ltz": "timestamptz", "timestamp_ntz": "timestamp", "tinyint": "smallint", "uint8": "smallint",
    "uint16": "int", "uint32": "bigint", "uint64": "numeric", "varbinary": "bytea",
}  # fmt: skip
"""Maps type names of other systems to the rw_sql type that corresponds to them."""


def unknown_type(token: Token, known: Collection[str], surplus: str = "") -> SqlError:
    """The error for a type that does not exist. The error's hint names the type among ``known`` that was probably
    meant. ``surplus`` is the text of the type's arguments in the statement. If the type that was probably meant accepts
    no arguments, the hint says to omit the arguments."""
    near = [_OF_OTHERS[token.value]] if token.value in _OF_OTHERS else near_names(token.value, known)
    if near and surplus and near[0] not in _WITH_ARGUMENTS:
        hint = f"write {near[0].upper()}, without ({surplus})"
        return SqlError(UNSUPPORTED_TYPE, f'type "{token.value}" does not exist', hint=hint, span=token.span)
    return SqlError(
        UNSUPPORTED_TYPE,
        f'type "{token.value}" does not exist',
        hint=f'did you mean "{near[0]}"?' if near else "write a type such as INT, DOUBLE, VARCHAR or TIMESTAMP",
        span=token.span,
    )


_NAMES = frozenset(
    [
        "boolean",
        "bool",
        "smallint",
        "int2",
        "int",
        "integer",
        "int4",
        "bigint",
        "int8",
        "real",
        "float4",
        "double",
        "float8",
        "float",
        "numeric",
        "decimal",
        "dec",
        "varchar",
        "string",
        "text",
        "char",
        "character",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timetz",
        "interval",
        "jsonb",
        "json",
        "serial",
        "uuid",
        "vector",
        "rw_int256",
        "rw_uint256",
        "rw_timestamp",
        "regclass",
        "regproc",
        "tinyint",
        "byte",
        "short",
        "long",
        "binary",
        "timestamp_ntz",
        "timestamp_ltz",
        "variant",
        "void",
    ]
)
LITERALS = _NAMES - {"void", "serial", "regproc"}
"""The types whose name may stand before a string literal: ``DATE '2026-01-31'``."""


class TypeReader(Cursor):
    """Reads the types in casts and literals."""

    __slots__ = ()

    def data_type(self) -> None:
        """Skips a type. Raises SqlError INVALID_EXPRESSION, UNSUPPORTED_TYPE."""
        self._data_type()
        before, after = self.tokens[self.at - 1], self.peek()
        if before.text == ">" and after.start == before.end and after.text in _STUCK_TO:
            self.refuse(f"a space is missing between > and {after.text}", after, hint=f"write > {after.text}")

    def _data_type(self) -> None:
        self.deeper()
        token = self.peek()
        if token.kind != WORD and not self.is_name():
            self.fail("a type")
        word = token.value.lower()
        following = self.peek(1)
        if word == "struct" and following.text == "<":
            self.at += 2
            if not self.is_sign(">"):
                self.comma_separated(self._struct_field)
            self._close()
        elif word == "array" and following.text == "<":
            self.at += 2
            self._data_type()
            self._close()
        elif word == "map" and following.text in ("<", "("):
            self.at += 2
            self._data_type()
            self.expect_sign(",")
            self._data_type()
            self.expect_sign(">" if following.text == "<" else ")")
        elif word not in _NAMES:
            surplus = following.text == "(" and self.peek(2).kind == NUMBER and self.peek(3).text == ")"
            raise unknown_type(token, _NAMES, self.peek(2).text if surplus else "")
        else:
            self.at += 1
            self._modifiers(word)
        while self.is_sign("[") and self.peek(1).text == "]":
            self.at += 2
        self.depth -= 1

    def _struct_field(self) -> None:
        self.name()
        self.take_sign(":")
        self._data_type()

    def _close(self) -> None:
        self.expect_sign(">")

    def _modifiers(self, word: str) -> None:
        if word == "double":
            self.take("PRECISION")
        elif word in ("char", "character"):
            self.take("VARYING")
        elif word in ("timestamp", "time"):
            _ = self.take("WITH", "TIME", "ZONE") or self.take("WITHOUT", "TIME", "ZONE")
        elif word == "interval" and self.take_one(*_FIELDS) and self.take("TO") and not self.take_one(*_FIELDS):
            self.fail("date/time field")
        if word in _WITH_ARGUMENTS and self.is_sign("(") and self.peek(1).kind == NUMBER:
            self.at += 1
            first = self._whole_number()
            if word == "float" and not 1 <= int(first.text) <= 53:
                self.refuse(
                    "the precision of FLOAT must be between 1 and 53", first, hint="write FLOAT(24) or FLOAT(53)"
                )
            if word in _WITH_SCALE and self.take_sign(","):
                self._whole_number()
            self.expect_sign(")")
        if word in _WITH_COLLATION and self.take("COLLATE"):
            self.name()

    def _whole_number(self) -> Token:
        number = self.peek()
        if number.kind != NUMBER or not number.text.isdecimal() or len(number.text) > 9:
            self.fail("a whole number")
        self.at += 1
        return number


_STUCK_TO = frozenset("<>=*/~!@#%^&|`?")
"""Characters that form an operator with a ``>`` directly before them."""
_FIELDS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_WITH_SCALE = frozenset({"numeric", "decimal", "dec"})
_WITH_COLLATION = frozenset({"string", "varchar", "char"})
_WITH_ARGUMENTS = _WITH_SCALE | {"varchar", "char", "character", "float", "vector"}
