"""Reads expressions that contain keywords, such as CASE, CAST, EXTRACT and INTERVAL, and arrays and maps."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import NUMBER, QUOTED, STRING, WORD
from rw_sql.syntax.sql_reader.types import TypeReader
from rw_sql.syntax.sql_reader.words import BETWEEN, QUANTIFIERS, UNITS

if TYPE_CHECKING:
    from collections.abc import Callable


class FormReader(TypeReader):
    """Reads expressions that contain keywords, such as CASE. Subclasses implement reading the expressions and queries
    inside them."""

    __slots__ = ()

    @abstractmethod
    def expression(self) -> None:
        """Skips an expression."""

    @abstractmethod
    def operators(self, least: int) -> None:
        """Skips an expression whose operators have a precedence above ``least``."""

    @abstractmethod
    def query_or_expressions(self) -> bool:
        """Skips a query, or expressions that are separated by commas. Returns True if there are several expressions."""

    @abstractmethod
    def wildcard_or_expression(self) -> None:
        """Skips ``*``, ``t.*``, ``(expression).*`` or an expression."""

    @abstractmethod
    def subquery(self) -> None:
        """Skips a query, which may use columns of the enclosing queries."""

    def case(self) -> None:
        if self.word() != "WHEN":
            self.expression()
        if self.word() != "WHEN":
            self.fail("WHEN")
        while self.take("WHEN"):
            self.expression()
            self.expect("THEN")
            self.expression()
        if self.take("ELSE"):
            self.expression()
        self.expect("END")

    def interval(self) -> None:
        is_text = self.peek().kind == STRING
        if is_text:
            self.at += 1
        else:
            _ = self.take_sign("-") or self.take_sign("+")
            if self.peek().kind not in (NUMBER, STRING):
                self.fail("literal string")
            self.at += 1
        if self.word() in UNITS:
            self.at += 1
            self._precision()
            if self.take("TO"):
                if self.word() not in UNITS:
                    self.fail("date/time field")
                self.at += 1
                self._precision()
                return
            while self.peek().kind in (NUMBER, STRING) and self.word(1) in UNITS:
                self.at += 2
        elif not is_text or self._lacks_unit():
            self.fail("date/time field")

    def _lacks_unit(self) -> bool:
        """True if the next word is a misspelled unit, as in ``INTERVAL '1' huors``, and not an alias."""
        return self.tokens[self.at - 1].value.strip().isdecimal() and bool(self.word()) and self.is_name()

    def _precision(self) -> None:
        if self.is_sign("(") and self.peek(1).kind == NUMBER:
            self.at += 2
            if self.take_sign(","):
                self.at += 1
            self.expect_sign(")")

    def array(self) -> None:
        self.expect_sign("[")
        if self.take_sign("]"):
            return
        self.deeper()
        self.comma_separated(self.array if self.is_sign("[") else self.expression)
        self.depth -= 1
        self.expect_sign("]")

    def map_entry(self) -> None:
        self.expression()
        self.expect_sign(":")
        self.expression()

    # Forms with keywords inside, read between their parentheses

    def _cast(self) -> None:
        self.expression()
        self.expect("AS")
        self.data_type()

    def _exists(self) -> None:
        if self.is_sign("(") or self.word() in ("SELECT", "WITH", "VALUES") or not self._begins_arguments():
            self.subquery()
        else:
            self.expression()
            self.expect_sign(",")
            self.expression()

    def _begins_arguments(self) -> bool:
        """True if EXISTS is followed by the arguments of Spark's array function of this name, as in ``EXISTS (xs, x ->
        x > 1)``, and not by a query."""
        following = self.peek(1).text
        return (self.is_name() and following in (",", ".")) or (self.word() == "ARRAY" and following in ("(", "["))

    def _extract(self) -> None:
        if self.peek().kind not in (WORD, STRING, QUOTED):
            self.fail("date/time field")
        self.at += 1
        self.expect("FROM")
        self.expression()

    def _substring(self) -> None:
        self.expression()
        if self.take("FROM") or self.take_sign(","):
            self.expression()
        if self.take("FOR") or self.take_sign(","):
            self.expression()

    def _position(self) -> None:
        self.operators(BETWEEN)
        if self.take_sign(","):
            self.comma_separated(self.expression)
            return
        self.expect("IN")
        self.operators(BETWEEN)

    def _overlay(self) -> None:
        self.expression()
        if self.take_sign(","):
            self.expression()
            self.expect_sign(",")
            self.comma_separated(self.expression)
            return
        self.expect("PLACING")
        self.expression()
        self.expect("FROM")
        self.expression()
        if self.take("FOR"):
            self.expression()

    def _trim(self) -> None:
        self.take_one("BOTH", "LEADING", "TRAILING")
        if not self.take("FROM"):
            self.expression()
            if not self.take("FROM"):
                if self.take_sign(","):
                    self.expression()
                return
        self.expression()
        if self.take_sign(","):
            self.expression()

    def _row(self) -> None:
        if not self.is_sign(")"):
            self.comma_separated(self.expression)

    def _array_of(self) -> None:
        if not self.is_sign(")"):
            self.query_or_expressions()

    def _quantified(self) -> None:
        if self.word() in ("SELECT", "WITH", "VALUES"):
            hint = "write IN (SELECT …), or compare with (SELECT max(…) …)"
            self.refuse("ANY, SOME and ALL take no query", self.peek(), hint=hint)
        self.comma_separated(self.expression)

    def _struct(self) -> None:
        if not self.is_sign(")"):
            self.comma_separated(self._struct_value)

    def _struct_value(self) -> None:
        self.wildcard_or_expression()
        if self.take("AS"):
            self.label()


FORMS: dict[str, Callable[[FormReader], None]] = {
    "CAST": FormReader._cast,
    "TRY_CAST": FormReader._cast,
    "EXISTS": FormReader._exists,
    "EXTRACT": FormReader._extract,
    "SUBSTRING": FormReader._substring,
    "SUBSTR": FormReader._substring,
    "POSITION": FormReader._position,
    "OVERLAY": FormReader._overlay,
    "TRIM": FormReader._trim,
    "ROW": FormReader._row,
    "ARRAY": FormReader._array_of,
    "STRUCT": FormReader._struct,
    **dict.fromkeys(QUANTIFIERS, FormReader._quantified),
}
