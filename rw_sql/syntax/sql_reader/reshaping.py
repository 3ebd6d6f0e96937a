"""Reads clauses of FROM that transform a table: PIVOT, UNPIVOT, MATCH_RECOGNIZE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import NUMBER
from rw_sql.syntax.sql_reader.expressions import ExpressionReader

if TYPE_CHECKING:
    from collections.abc import Callable


class ReshapingReader(ExpressionReader):
    """Reads PIVOT, UNPIVOT and MATCH_RECOGNIZE."""

    __slots__ = ()

    def reshaping(self) -> bool:
        """Skips PIVOT, UNPIVOT or MATCH_RECOGNIZE. Returns True if such a clause was skipped."""
        word = self.word()
        if word == "UNPIVOT" and self.word(1) in ("INCLUDE", "EXCLUDE") and self.word(2) == "NULLS":
            self.at += 2
        if word not in RESHAPING or self.peek(1).text != "(":
            return False
        self.at += 2
        RESHAPING[word](self)
        self.expect_sign(")")
        return True

    def _pivot(self) -> None:
        self.comma_separated(self._labelled)
        self.expect("FOR")
        self._names()
        self.expect("IN")
        self.in_parentheses(self._labelled)

    def _unpivot(self) -> None:
        self._names()
        self.expect("FOR")
        self.name()
        self.expect("IN")
        self.in_parentheses(self._labelled)

    def _names(self) -> None:
        if self.is_sign("("):
            self.in_parentheses(self.name)
        else:
            self.name()

    def _labelled(self) -> None:
        self.expression()
        if self.take("AS"):
            self.label()
        elif self.word() != "FOR" and self.is_name():
            self.at += 1

    def _match_recognize(self) -> None:
        if self.take("PARTITION", "BY"):
            self.comma_separated(self.expression)
        if self.take("ORDER", "BY"):
            self.comma_separated(self.order_item)
        if self.take("MEASURES"):
            self.comma_separated(self._measure)
        _ = self.take("ONE", "ROW", "PER", "MATCH") or self.take("ALL", "ROWS", "PER", "MATCH")
        if self.take("AFTER", "MATCH", "SKIP"):
            self._skip()
        self.expect("PATTERN")
        self.expect_sign("(")
        self._pattern()
        self.expect_sign(")")
        self.expect("DEFINE")
        self.comma_separated(self._definition)

    def _measure(self) -> None:
        self.expression()
        self.expect("AS")
        self.label()

    def _skip(self) -> None:
        if self.take("PAST", "LAST", "ROW"):
            return
        self.expect("TO")
        if not self.take("NEXT", "ROW"):
            self.take_one("FIRST", "LAST")
            self.name()

    def _definition(self) -> None:
        self.name()
        self.expect("AS")
        self.expression()

    def _pattern(self) -> None:
        self.deeper()
        while True:
            if self.take("PERMUTE"):
                self.in_parentheses(self._pattern)
            elif self.take_sign("("):
                self._pattern()
                self.expect_sign(")")
            else:
                self.name()
            self._repeated()
            if not self.take_sign("|") and not self.is_name() and not self.is_sign("("):
                break
        self.depth -= 1

    def _repeated(self) -> None:
        if self.take_sign("{"):
            is_low = self._count()
            if not is_low or self.is_sign(","):
                self.expect_sign(",")
                if not self._count() and not is_low:
                    self.fail("a number")
            self.expect_sign("}")
        elif not (self.take_sign("*") or self.take_sign("+")):
            self.take_sign("?")
            return
        self.take_sign("?")

    def _count(self) -> bool:
        number = self.peek()
        if number.kind != NUMBER:
            return False
        if not number.text.isdecimal() or int(number.text) >= 1 << 32:
            self.refuse(f"invalid repetition: {number.text}", number, hint=f"write a whole number below {1 << 32}")
        self.at += 1
        return True


RESHAPING: dict[str, Callable[[ReshapingReader], None]] = {
    "PIVOT": ReshapingReader._pivot,
    "UNPIVOT": ReshapingReader._unpivot,
    "MATCH_RECOGNIZE": ReshapingReader._match_recognize,
}
