"""Queries: SELECT, VALUES, set operations, WITH, joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import RESERVED
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
"""Words that cannot be an alias without AS, because they begin a following clause."""
_UNITS = frozenset(["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"])
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")


class QueryReader(ReshapingReader):
    """Reads queries and the expressions in them."""

    __slots__ = ("within",)

    def __init__(self, tokens: Sequence[Token], at: int, last: int, ended: Token) -> None:
        super().__init__(tokens, at, last, ended)
        self.within = 0
        """The number of enclosing queries whose columns may be used."""

    def subquery(self) -> None:
        """Skips a query that may use the columns of enclosing queries."""
        begun, before = self.at, len(self.mentioned)
        self.within += 1
        self.query()
        self.within -= 1
        if any(token.upper == "FROM" and token.kind == WORD for token in self.tokens[begun : self.at]):
            del self.mentioned[before:]

    def query(self) -> None:
        """Skips the longest query at this position. Raises SqlError INVALID_EXPRESSION, TOO_COMPLEX."""
        self.deeper()
        if self.take("WITH"):
            self.take("RECURSIVE")
            self.comma_separated(self._common_table)
        self._body()
        self._tail()
        self.depth -= 1

    def _common_table(self) -> None:
        self.name()
        if self.is_sign("("):
            self.in_parentheses(self.name)
        self.expect("AS")
        if self.take("CHANGELOG", "FROM"):
            self.dotted_name()
            return
        _ = self.take("MATERIALIZED") or self.take("NOT", "MATERIALIZED")
        self.expect_sign("(")
        self.query()
        self.expect_sign(")")

    def _body(self) -> None:
        self._term()
        while self.word() in _SET_OPERATORS:
            self.at += 1
            self.take_one("ALL", "DISTINCT")
            if self.take("CORRESPONDING") and self.take("BY"):
                self.in_parentheses(self.name)
            self._term()

    def _term(self) -> None:
        if self.take("SELECT"):
            self._select()
        elif self.take_sign("("):
            self.query()
            self.expect_sign(")")
        elif self.take("VALUES"):
            self.comma_separated(self._row_of_values)
            if self.word() == "AS" and self.peek(2).text == "(":
                self._table_alias()
        else:
            self.fail("SELECT, VALUES, or a subquery in the query body")

    def _row_of_values(self) -> None:
        self.in_parentheses(self.expression)

    def _tail(self) -> None:
        is_ordered = self.take("ORDER", "BY")
        if is_ordered:
            self.comma_separated(self.order_item)
        for words in (("DISTRIBUTE", "BY"), ("CLUSTER", "BY")):
            if self.take(*words):
                self.comma_separated(self.expression)
        if self.take("SORT", "BY"):
            self.comma_separated(self.order_item)
        limited = offset = False
        while True:
            if not limited and self.take("LIMIT"):
                limited = True
                if not self.take("ALL"):
                    self.expression()
            elif not offset and self.take("OFFSET"):
                offset = True
                self._offset()
            else:
                break
        if self.take("FETCH"):
            self._fetch(limited, is_ordered)

    def _offset(self) -> None:
        if self.peek().kind != NUMBER:
            self.fail("literal number")
        self.expression()
        self.take_one("ROW", "ROWS")

    def _fetch(self, limited: bool, is_ordered: bool) -> None:
        if limited:
            self.refuse("cannot specify both LIMIT and FETCH", self.tokens[self.at - 1], hint="omit FETCH")
        if not self.take_one("FIRST", "NEXT"):
            self.fail("one of FIRST or NEXT")
        if not self.take_one("ROW", "ROWS"):
            if self.peek().kind != NUMBER:
                self.fail("literal number")
            self.at += 1
            if not self.take_one("ROW", "ROWS"):
                self.fail("one of ROW or ROWS")
        if self.take("WITH", "TIES"):
            if not is_ordered:
                message = "WITH TIES cannot be specified without ORDER BY clause"
                self.refuse(message, self.tokens[self.at - 1], hint="add ORDER BY, or write ONLY")
        elif not self.take("ONLY"):
            self.fail("one of ONLY or WITH TIES")

    def _select(self) -> None:
        if self.take("DISTINCT"):
            if self.take("ON"):
                self.in_parentheses(self.expression)
        else:
            self.take("ALL")
        begun, before = self.at, len(self.mentioned)
        star = self._items()
        if self._lacks_from():
            if star is not None:
                self.refuse("SELECT * with no tables specified is not valid", star, hint="add FROM a_relation")
            if not self.within:
                self._refuse_columns_of_nothing(begun, before)
        if self.take("FROM"):
            self.comma_separated(self._table_and_joins)
            while self.word() == "LATERAL" and self.word(1) == "VIEW":
                self._lateral_view()
        if self.take("WHERE"):
            self.expression()
        if self.take("GROUP", "BY"):
            self._group_by()
        if self.take("HAVING"):
            self.expression()
        if self.take("WINDOW"):
            self.comma_separated(self._named_window)
        if self.take("QUALIFY"):
            self.expression()

    def _items(self) -> Token | None:
        """Skips the SELECT list; returns the first ``*`` or ``t.*`` in it."""
        star = None
        while True:
            item = self.peek()
            if self._item() and star is None:
                star = item
            if not self.take_sign(","):
                return star

    def _lacks_from(self) -> bool:
        """True if the SELECT list has ended and FROM does not follow."""
        after = self.peek()
        is_word = after.kind == WORD and (after.upper in RESERVED or after.upper == "EMIT") and after.upper != "FROM"
        return is_word or after is self.ended or after.text == ")"

    def _refuse_columns_of_nothing(self, begun: int, before: int) -> None:
        """Raises SqlError INVALID_EXPRESSION if the SELECT list that begins at token ``begun`` refers to a column."""
        if self.has_lambda:
            return
        parameters = self.arrow_parameters(begun)
        for column in self.mentioned[before:]:
            if column.value not in parameters:
                hint = f"add FROM a_relation, or write a text in quotes: '{column.value}'"
                self.refuse(f'column "{column.value}" does not exist: the query has no FROM', column, hint=hint)

    def _item(self) -> bool:
        """Skips an item of SELECT; True if it is ``*`` or ``t.*``."""
        if self.wildcard():
            return True
        self.wildcard_or_expression()
        before = self.tokens[self.at - 1]
        if before.text == "*" and before.kind not in (STRING, QUOTED):
            return False
        if self.take("AS"):
            if self.is_sign("("):
                self.in_parentheses(self.name)
            else:
                self.label()
        elif self._is_alias():
            # ``'text' SECOND`` is an interval without its first word, not a text with the alias ``second``.
            if before.kind == STRING and self.word() in _UNITS:
                self.fail("AS")
            self.at += 1
        return False

    def _is_alias(self) -> bool:
        token = self.peek()
        if token.kind in (QUOTED, BACKQUOTED):
            return True
        return token.kind == WORD and token.upper not in _NO_ALIAS and self.is_name()

    def _group_by(self) -> None:
        if self.take("ALL"):
            return
        self.comma_separated(self._group_item)
        if self.word() == "WITH" and self.word(1) in ("ROLLUP", "CUBE"):
            self.at += 2
        elif self.take("GROUPING", "SETS"):
            self.in_parentheses(self._grouping_set)

    def _group_item(self) -> None:
        if self.take("GROUPING", "SETS") or (self.peek(1).text == "(" and self.take_one("ROLLUP", "CUBE")):
            self.in_parentheses(self._grouping_set)
        else:
            self.expression()

    def _grouping_set(self) -> None:
        if self.is_sign("(") and self.peek(1).text == ")":
            self.at += 2
        else:
            self._group_item()

    def _named_window(self) -> None:
        self.name()
        self.expect("AS")
        self.expect_sign("(")
        self.window()
        self.expect_sign(")")

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

    # FROM

    def _table_and_joins(self) -> bool:
        """Skips a table and its joins; True if there are joins."""
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
        """True if the word begins a clause, according to the tokens after it, and is not an alias."""
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
