"""Reads the tables of FROM: names, subqueries, joins, table functions, samples, and their aliases."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import BACKQUOTED, NUMBER, QUOTED, STRING, WORD
from rw_sql.syntax.sql_reader.reshaping import RESHAPING, ReshapingReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token

_NO_ALIAS = frozenset(
    [
        "WITH",
        "EXPLAIN",
        "ANALYZE",
        "SELECT",
        "WHERE",
        "GROUP",
        "SORT",
        "HAVING",
        "ORDER",
        "LATERAL",
        "LIMIT",
        "OFFSET",
        "FETCH",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "MINUS",
        "FROM",
        "ON",
        "JOIN",
        "INNER",
        "CROSS",
        "FULL",
        "LEFT",
        "RIGHT",
        "NATURAL",
        "USING",
        "CLUSTER",
        "DISTRIBUTE",
        "OUTER",
        "SET",
        "RETURNING",
        "EMIT",
        "ASOF",
        "SEMI",
        "ANTI",
        "WINDOW",
        "QUALIFY",
        "TABLESAMPLE",
        "PIVOT",
        "UNPIVOT",
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "LIKE",
        "ILIKE",
        "BETWEEN",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "AS",
        "ASC",
        "DESC",
        "CASE",
        "DISTINCT",
        "ALL",
        "VALUES",
        "FOR",
        "INTO",
        "OVER",
        "FILTER",
        "WITHIN",
    ]
)
"""Words that cannot be an alias without AS, because they begin a clause that may follow a table."""


class TableReader(ReshapingReader):
    """Reads the tables of FROM."""

    __slots__ = ("within",)

    def __init__(self, tokens: Sequence[Token], at: int, last: int, ended: Token) -> None:
        super().__init__(tokens, at, last, ended)
        self.within = 0
        """The number of enclosing queries whose columns the current query may use."""

    @abstractmethod
    def query(self) -> None:
        """Skips the longest query at this position."""

    def _lateral_view(self) -> None:
        self.at += 2
        self.take("OUTER")
        self.dotted_name()
        self.expect_sign("(")
        if not self.is_sign(")"):
            self.comma_separated(self.expression)
        self.expect_sign(")")
        named = self._is_alias()
        if named:
            self.at += 1
        if self.take("AS") or (named and self.is_name()):
            self.comma_separated(self.name)
        elif not named:
            self.fail("the name of a table")

    def _table_and_joins(self) -> bool:
        """Skips a table and its joins. Returns True if there are joins."""
        self._table()
        joined = False
        while self._join() or self._reshape():
            joined = True
        return joined

    def _reshape(self) -> bool:
        if self.word() in ("PIVOT", "UNPIVOT") and self.reshaping():
            self._table_alias()
            return True
        return False

    def _join(self) -> bool:
        if self.take("CROSS"):
            self.expect("JOIN")
            self._table()
            return True
        natural = self.take("NATURAL")
        asof = not natural and self.take("ASOF")
        side = self.take_one("INNER", "LEFT", "RIGHT", "FULL")
        if side in ("LEFT", "RIGHT", "FULL"):
            if asof and side != "LEFT":
                self.at -= 1
                self.fail("LEFT after ASOF. RIGHT or FULL are not supported")
            if not self.take("OUTER") and side == "LEFT":
                self.take_one("SEMI", "ANTI")
        elif not side:
            side = self.take_one("SEMI", "ANTI")
        if not self.take("JOIN"):
            if natural or asof or side:
                self.fail("JOIN" if side else f"a join type after {'NATURAL' if natural else 'ASOF'}")
            if self.word() == "OUTER":
                self.fail("LEFT, RIGHT, or FULL")
            return False
        self._table()
        if natural:
            return True
        if self.take("ON"):
            self.expression()
        elif self.take("USING"):
            self.in_parentheses(self.name)
        elif asof or side in (None, "", "INNER"):
            self.fail(f"join constraint after {'ASOF ' if asof else ''}{side or 'INNER'} JOIN")
        return True

    def _table(self) -> None:
        self.deeper()
        if self.word() == "LATERAL" and self.word(1) != "VIEW":
            self.at += 1
            if self.take_sign("("):
                self.within += 1
                self._derived()
                self.within -= 1
            else:
                self.dotted_name()
                if not self.is_sign("("):
                    self.fail("(")
                self._table_function()
                self._table_alias()
        elif self.take_sign("("):
            if self._begins_query():
                self._derived()
            else:
                inner = self.is_sign("(")
                if not self._table_and_joins() and not inner:
                    self.fail("joined table")
                self.expect_sign(")")
                self._table_alias()
        elif self.word() == "VALUES" and self.peek(1).text == "(":
            self.at += 1
            self.comma_separated(self._row_of_values)
            self._table_alias()
        else:
            self._named_table()
        self.depth -= 1

    def _derived(self) -> None:
        self.query()
        self.expect_sign(")")
        self._sample()
        self._table_alias()

    def _named_table(self) -> None:
        self.name()
        self._fields()
        if self.is_sign("."):
            self.at += 1
            self.fail("identifier")
        if self.is_sign("("):
            self._table_function()
        else:
            self._as_of()
            self._sample()
        self._table_alias()
        if self.word() == "MATCH_RECOGNIZE" and self.reshaping():
            self._table_alias()

    def _table_function(self) -> None:
        self.at += 1
        if not self.is_sign(")"):
            self._arguments()
        self.expect_sign(")")
        self.take("WITH", "ORDINALITY")

    def _as_of(self) -> None:
        if self.take("FOR"):
            if self.take("SYSTEM_TIME"):
                self.expect("AS", "OF")
                self._point_in_time()
            else:
                self.expect("SYSTEM_VERSION", "AS", "OF")
                if self.peek().kind not in (NUMBER, STRING):
                    self.fail("number or string")
                self.at += 1
        elif self.word() in ("VERSION", "TIMESTAMP") and self.word(1) == "AS" and self.word(2) == "OF":
            self.at += 3
            self.expression()

    def _point_in_time(self) -> None:
        if self.peek().kind in (NUMBER, STRING):
            self.at += 1
            return
        if not self.take_one("NOW", "PROCTIME"):
            self.fail("proctime(), now(), number or string")
        self.expect_sign("(")
        self.expect_sign(")")
        if self.take_sign("-"):
            self.take("INTERVAL")
            self.interval()

    def _sample(self) -> None:
        if self.take("TABLESAMPLE"):
            method = self.take_one("SYSTEM", "BERNOULLI")
            self.expect_sign("(")
            if not method and self.word() == "BUCKET" and self.peek(1).kind == NUMBER:
                self._bucket()
            else:
                self.expression()
                if not method and not self.take_one("PERCENT", "ROWS"):
                    self.fail("one of PERCENT or ROWS")
            self.expect_sign(")")
            if self.take("REPEATABLE"):
                self.in_parentheses(self.expression)

    def _bucket(self) -> None:
        self.at += 2
        self.expect("OUT", "OF")
        if self.peek().kind != NUMBER:
            self.fail("a number")
        self.at += 1

    def _begins_clause(self) -> bool:
        """True if the tokens after the word show that the word begins a clause and is not an alias."""
        following = self.peek(1).text
        return (self.word() == "ENGINE" and following == "=") or (self.word() in RESHAPING and following == "(")

    def _table_alias(self) -> None:
        if self.take("AS"):
            self.name()
        elif self._is_alias() and not self._begins_clause():
            self.at += 1
        else:
            return
        if self.is_sign("("):
            self.in_parentheses(self.name)

    def _row_of_values(self) -> None:
        self.in_parentheses(self.expression)

    def _is_alias(self) -> bool:
        token = self.peek()
        if token.kind in (QUOTED, BACKQUOTED):
            return True
        return token.kind == WORD and token.upper not in _NO_ALIAS and self.is_name()
