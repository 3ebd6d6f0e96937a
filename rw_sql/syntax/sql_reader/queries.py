"""Reads queries: SELECT, VALUES, set operations and WITH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.tokens import NUMBER, QUOTED, STRING, WORD
from rw_sql.syntax.sql_reader.tables import TableReader

if TYPE_CHECKING:
    from rw_sql.syntax.lexing.tokens import Token

_UNITS = frozenset(["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"])
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")


class QueryReader(TableReader):
    """Reads queries and the expressions in them."""

    __slots__ = ()

    def subquery(self) -> None:
        """Skips a query, which may use columns of the enclosing queries."""
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
        """Skips the SELECT list. Returns the first token of the first ``*`` or ``t.*`` in the list; None if there is
        none."""
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
                hint = f"add FROM a_relation, or quote the string: '{column.value}'"
                self.refuse(f'column "{column.value}" does not exist: the query has no FROM', column, hint=hint)

    def _item(self) -> bool:
        """Skips an item of the SELECT list. Returns True if the item is ``*`` or ``t.*``."""
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
            # ``'text' SECOND`` is an interval without the word INTERVAL, not a string with the alias ``second``.
            if before.kind == STRING and self.word() in _UNITS:
                self.fail("AS")
            self.at += 1
        return False

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
