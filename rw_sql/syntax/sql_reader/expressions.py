"""Reads expressions: operators with their precedence, calls, and forms with keywords inside their parentheses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.tokens import BACKQUOTED, NUMBER, QUOTED, STRING, WORD, Token
from rw_sql.syntax.sql_reader.forms import FORMS, FormReader
from rw_sql.syntax.sql_reader.types import LITERALS
from rw_sql.syntax.sql_reader.words import (
    AT,
    BETWEEN,
    CONDITIONS,
    INFIX,
    IS,
    LIKE,
    LIKES,
    NEED_ARGUMENTS,
    NEVER_NAMES,
    NO_COLUMNS,
    NOT,
    NUMBER_SUFFIXES,
    ORDERED_BY_ONE,
    OTHER,
    POSTFIX,
    PREFIXES,
    SIGN,
    STRING_PREFIXES,
    WORD_POWERS,
)

if TYPE_CHECKING:
    from collections.abc import Container

_ROW_FIELD = re.compile(r"col\d+\Z")
"""Spark's names for the fields of a row such as (a, b)."""
_BEHIND_QUERIES = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "ORDER", "LIMIT", "OFFSET", "FETCH"})


class ExpressionReader(FormReader):
    """Reads expressions. Subclasses read the queries inside the expressions."""

    __slots__ = ()

    def expression(self) -> None:
        """Skips the longest expression at this position. Raises SqlError INVALID_EXPRESSION, TOO_COMPLEX."""
        self.operators(0)

    def operators(self, least: int) -> None:
        self.deeper()
        self._prefix(least)
        while (power := self._power()) > least:
            self._infix(power)
        self.depth -= 1

    def _power(self) -> int:
        """The precedence of the next token's operator; 0 if the next token does not begin an operator."""
        word = self.word()
        if word:
            return self._word_power(word)
        operator = self.operator()
        if operator in ("::", "[") or (operator == "." and self._is_field()):
            return POSTFIX
        return INFIX.get(operator, 0)

    def _is_field(self) -> bool:
        """True if a field of the preceding value may follow, as in ``(a).b``, ``f(x).b`` and ``a[1].b``."""
        before, field = self.tokens[self.at - 1], self.peek(1)
        if self.at == self.closed or before.text not in (")", "]") or field.kind not in (WORD, QUOTED, BACKQUOTED):
            return False
        return field.kind != WORD or field.upper not in RESERVED or field.start == self.peek().end

    def _word_power(self, word: str) -> int:
        if word == "NOT":
            word = self.word(1)
            if word in ("IN", "BETWEEN"):
                return BETWEEN
            return LIKE if word in LIKES or word == "SIMILAR" else 0
        if word == "AT":
            return AT if self.word(1) == "TIME" and self.word(2) == "ZONE" else 0
        if word == "OPERATOR":
            return OTHER if self.peek(1).text == "(" else 0
        return WORD_POWERS.get(word, 0)

    def _infix(self, power: int) -> None:
        word = self.word()
        if word:
            self._word_infix(word, power)
            return
        operator = self.operator()
        self.at += len(operator)
        if operator == "::":
            self.data_type()
        elif operator == "[":
            self._index()
        elif operator == ".":
            self.label()
            self._fields()
        else:
            self.operators(power)

    def _word_infix(self, word: str, power: int) -> None:
        if word == "NOT":
            self.at += 1
            word = self.word()
        self.at += 1
        if word in ("AND", "OR", "XOR", "DIV"):
            self.operators(power)
        elif word == "IS":
            self._is()
        elif word == "IN":
            self.expect_sign("(")
            self.query_or_expressions()
            self.expect_sign(")")
            self.closed = self.at
        elif word == "BETWEEN":
            self.take_one("SYMMETRIC", "ASYMMETRIC")
            self.operators(BETWEEN)
            self.expect("AND")
            self.operators(BETWEEN)
        elif word == "AT":
            self.at += 2
            self.operators(power)
        elif word == "COLLATE":
            self.dotted_name()
        elif word == "OPERATOR":
            self._qualified_operator(INFIX)
            self.operators(power)
        elif word in LIKES or word == "SIMILAR":
            if word == "SIMILAR":
                self.expect("TO")
            self.operators(LIKE)
            if self.take("ESCAPE"):
                self.string()
        # ISNULL and NOTNULL have no right operand.

    def _is(self) -> None:
        self.take("NOT")
        if self.take_one("TRUE", "FALSE", "UNKNOWN", "NULL"):
            return
        if self.take("DISTINCT", "FROM"):
            self.operators(IS)
        elif self.take("JSON"):
            self.take_one("VALUE", "ARRAY", "OBJECT", "SCALAR")
            if self.take_one("WITH", "WITHOUT"):
                self.expect("UNIQUE")
                self.take("KEYS")
        else:
            self.fail("[NOT] { TRUE | FALSE | UNKNOWN | NULL | DISTINCT FROM | JSON } after IS")

    def _index(self) -> None:
        if not self.is_sign(":"):
            self.expression()
        if self.take_sign(":") and not self.is_sign("]"):
            self.expression()
        self.expect_sign("]")

    def _qualified_operator(self, known: Container[str]) -> None:
        self.expect_sign("(")
        if self.is_name():
            self.name()
            self.expect_sign(".")
        operator = self.operator()
        if operator not in known:
            self.fail("an operator")
        self.at += len(operator)
        self.expect_sign(")")

    # The beginnings of expressions

    def _prefix(self, least: int) -> None:
        token = self.peek()
        kind = token.kind
        if kind == WORD:
            if token.upper == "NOT" and least > NOT:
                self.refuse(f"syntax error at or near {token.text}", token)
            self._word_prefix(token.upper)
        elif kind == NUMBER:
            self.at += 1
            after = self.peek()
            if after.kind == WORD and after.start == token.end:
                if after.upper not in NUMBER_SUFFIXES:
                    hint = f"write a space or an operator between {token.text} and {after.text}"
                    self.refuse(f"trailing junk after numeric literal: {token.text}{after.text}", after, hint=hint)
                self.at += 1
        elif kind == STRING:
            self.at += 1
        elif kind in (QUOTED, BACKQUOTED):
            self._name_or_call()
        else:
            self._sign_prefix()

    def _sign_prefix(self) -> None:
        operator = self.operator()
        if operator == "(":
            self.at += 1
            is_row = self.query_or_expressions()
            self.expect_sign(")")
            if is_row and not _ROW_FIELD.match(self.peek(1).value):
                self.closed = self.at
        elif operator in ("+", "-"):
            self.at += 1
            self.operators(SIGN)
        elif operator in PREFIXES and operator not in ("+", "-"):
            self.at += len(operator)
            self.operators(OTHER)
        elif operator == "|":
            self.at += 1
            self.has_lambda = True
            self.comma_separated(self.name)
            self.expect_sign("|")
            self.expression()
        elif operator == "$" and self.peek(1).kind == NUMBER:
            self.at += 2
        else:
            self.fail("an expression")

    def query_or_expressions(self) -> bool:
        """Skips a query or expressions. Returns True if there are several expressions, which form a row."""
        if self._begins_query():
            self.subquery()
            return False
        self.expression()
        is_row = self.is_sign(",")
        while self.take_sign(","):
            self.expression()
        return is_row

    def _begins_query(self) -> bool:
        """True if a query comes next, with or without parentheses."""
        ahead = 0
        while self.peek(ahead).text == "(":
            ahead += 1
        if self.word(ahead) not in ("SELECT", "WITH", "VALUES"):
            return False
        return ahead == 0 or self._is_set_operation(ahead)

    def _is_set_operation(self, ahead: int) -> bool:
        """True if the query in the parentheses that begin at this position is one side of a UNION, EXCEPT or INTERSECT,
        or if ORDER BY or LIMIT follows this query."""
        depth = 0
        at = self.at
        while at < self.last:
            text = self.tokens[at].text
            depth += (text == "(") - (text == ")")
            at += 1
            if depth == 0:
                break
        return at < self.last and self.tokens[at].upper in _BEHIND_QUERIES

    def _word_prefix(self, word: str) -> None:
        following = self.peek(1)
        if following.kind == STRING:
            if word in STRING_PREFIXES and following.start == self.peek().end:
                self.at += 2
                return
            if word.lower() in LITERALS and word != "INTERVAL":
                self.at += 2
                return
        if word in ("TRUE", "FALSE", "NULL"):
            self.at += 1
        elif word == "NOT":
            self.at += 1
            self.operators(NOT)
        elif word == "CASE":
            self.at += 1
            self.case()
        elif word == "INTERVAL" and (following.kind in (STRING, NUMBER) or following.text in ("-", "+")):
            self.at += 1
            self.interval()
        elif word in ("TIMESTAMP", "TIME") and self.word(1) in ("WITH", "WITHOUT") and self.word(2) == "TIME":
            self.data_type()
            self.string()
        elif following.text == "(" and following.kind != QUOTED:
            self._call_form(word)
        elif word == "ARRAY" and following.text == "[":
            self.at += 1
            self.array()
        elif word == "MAP" and following.text == "{":
            self.at += 2
            if not self.take_sign("}"):
                self.comma_separated(self.map_entry)
                self.expect_sign("}")
        elif word == "AGGREGATE" and following.text == ":":
            self.at += 2
            self._name_or_call()
        elif word == "WINDOW" and not self._begins_window_clause():
            # The column that GROUP BY window(…) makes. Spark's documentation does not quote it.
            self.mentioned.append(self.peek())
            self.at += 1
            self._fields()
        elif word in RESERVED or word in NEVER_NAMES:
            self.refuse(f"syntax error at or near {self.peek().text}", self.peek())
        else:
            self._name_or_call()

    def _begins_window_clause(self) -> bool:
        """True if ``WINDOW w AS (…)`` comes next."""
        return self.is_name(1) and self.word(2) == "AS" and self.peek(3).text == "("

    def _call_form(self, word: str) -> None:
        """Reads a word that is followed by a parenthesis. This word begins either a call, or a form with keywords
        inside the parentheses."""
        form = FORMS.get(word)
        if form is not None:
            self.at += 2
            form(self)
            self.expect_sign(")")
            if word in CONDITIONS:
                self.closed = self.at
        elif word == "OPERATOR":
            self.at += 1
            self._qualified_operator(PREFIXES)
            self.operators(OTHER)
        elif word in ("LEFT", "RIGHT", "WINDOW"):
            self.at += 1
            self._call(self.tokens[self.at - 1])
        elif word in RESERVED or word == "INTERVAL":
            self.refuse(f"syntax error at or near {self.peek().text}", self.peek())
        else:
            self._name_or_call()

    # Names and calls

    def _name_or_call(self) -> None:
        begun = self.at
        first = self.name()
        self._fields()
        if self.is_sign("."):
            self.at += 1
            self.fail("an identifier or a '*' after '.'")
        if self.is_sign("("):
            if self.peek(1).text == ")" and first.upper in NEED_ARGUMENTS and self.at == begun + 1:
                self.at += 1
                self.fail(f"an argument of {first.text}")
            self._call(first)
        elif first.kind == BACKQUOTED or self.at > begun + 1 or (first.kind == WORD and first.upper not in NO_COLUMNS):
            self.mentioned.append(first)

    def arrow_parameters(self, begun: int) -> set[str]:
        """The parameters of all lambdas between token ``begun`` and this position. For example, ``x -> x + 1`` has the
        parameter ``x``, and ``(x, y) -> x + y`` has ``x`` and ``y``."""
        found: set[str] = set()
        for at in range(begun + 1, self.at - 1):
            if self.tokens[at].text != "-" or self.tokens[at + 1].text != ">":
                continue
            before = at - 1
            if self.tokens[before].text == ")":
                while before > begun and self.tokens[before].text != "(":
                    before -= 1
            found.update(token.value for token in self.tokens[before:at])
        return found

    def _fields(self) -> None:
        """Skips ``.a.b``. A reserved word is a field's name only if it directly follows the dot."""
        while self.is_sign("."):
            dot, field = self.peek(), self.peek(1)
            if field.kind not in (WORD, QUOTED, BACKQUOTED):
                return
            if field.kind == WORD and field.upper in RESERVED and field.start > dot.end:
                return
            self.at += 2

    def _call(self, function: Token) -> None:
        is_apart = self.peek().start > function.end
        self.expect_sign("(")
        if not self.take_sign(")"):
            _ = self.take("DISTINCT") or self.take("ALL")
            self._arguments()
            if self.take("ORDER", "BY"):
                self.comma_separated(self.order_item)
            _ = self.take("IGNORE", "NULLS") or self.take("RESPECT", "NULLS")
            self.expect_sign(")")
        if self.take("WITHIN", "GROUP"):
            self.expect_sign("(")
            self.expect("ORDER", "BY")
            self.order_item()
            if function.upper in ORDERED_BY_ONE and self.is_sign(","):
                hint = f"omit the text after the first column: {function.upper} orders by one column"
                self.refuse("only one arg in order by is expected here", self.peek(), hint=hint)
            while self.take_sign(","):
                self.order_item()
            self.expect_sign(")")
        if self.word() == "FILTER" and self.peek(1).text == "(":
            self.at += 2
            self.expect("WHERE")
            self.expression()
            self.expect_sign(")")
        _ = self.take("IGNORE", "NULLS") or self.take("RESPECT", "NULLS")
        if self.word() == "OVER" and (self.peek(1).text == "(" or self.is_name(1)):
            self.at += 1
            if self.take_sign("("):
                self.window()
                self.expect_sign(")")
            else:
                self.name()
        if is_apart or self.peek().start > self.tokens[self.at - 1].end:
            # In ``a (b).c`` and ``a(b) .c``, Spark reads ``.c`` as a field of the call's result. In other dialects,
            # this text lacks a comma.
            self.closed = self.at

    def _arguments(self) -> None:
        while True:
            is_variadic = self._argument()
            if not self.take_sign(","):
                return
            if is_variadic:
                hint = "move the VARIADIC argument to the end"
                self.refuse("VARIADIC argument must be the last", self.tokens[self.at - 1], hint=hint)

    def _argument(self) -> bool:
        """Skips an argument. Returns True if the argument is VARIADIC."""
        is_variadic = self.take("VARIADIC")
        if self.is_name() and self.peek(1).text in ("=", ":") and self.peek(2).text in (">", "="):
            first, second = self.peek(1), self.peek(2)
            if first.end == second.start and first.text + second.text in ("=>", ":="):
                self.at += 3
        self.wildcard_or_expression()
        return is_variadic

    def wildcard_or_expression(self) -> None:
        """Skips ``*``, ``t.*``, ``(expression).*`` or an expression."""
        if self.wildcard():
            return
        begins_bracket = self.is_sign("(")
        self.expression()
        if begins_bracket and self.is_sign(".") and self.peek(1).text == "*":
            self.at += 2

    def wildcard(self) -> bool:
        """If ``*`` or ``t.*`` comes next, skips it together with EXCEPT (…) and returns True."""
        ahead = 0
        while self.peek(ahead).kind in (WORD, QUOTED, BACKQUOTED) and self.peek(ahead + 1).text == ".":
            ahead += 2
        star = self.peek(ahead)
        if star.text != "*" or star.kind in (STRING, QUOTED):
            return False
        if ahead:
            self.name()
            self.at += ahead - 1
        self.at += 1
        if self.word() == "EXCEPT" and self.peek(1).text == "(" and self.word(2) not in ("SELECT", "WITH", "VALUES"):
            self.at += 1
            self.in_parentheses(self.expression)
        return True

    def order_item(self) -> None:
        """Skips ``expression [ASC | DESC] [NULLS {FIRST | LAST}]``."""
        self.expression()
        self.take_one("ASC", "DESC")
        if self.take("NULLS") and not self.take_one("FIRST", "LAST"):
            self.fail("FIRST or LAST")

    def window(self) -> None:
        """Skips the content of the parentheses of OVER and WINDOW."""
        if self.is_name() and self.word() not in ("PARTITION", "ROWS", "RANGE", "GROUPS", "SESSION"):
            self.name()
            return
        if self.take("PARTITION", "BY"):
            self.comma_separated(self.expression)
        if self.take("ORDER", "BY"):
            self.comma_separated(self.order_item)
        if not self.is_sign(")"):
            self._frame()

    def _frame(self) -> None:
        if not self.take_one("ROWS", "RANGE", "GROUPS", "SESSION"):
            self.fail("ROWS, RANGE, or GROUPS")
        if self.take("BETWEEN"):
            self._bound()
            self.expect("AND")
            self._bound()
        elif self.take("WITH", "GAP"):
            self.expression()
        else:
            self._bound()
        if self.take("EXCLUDE"):
            ways = (("CURRENT", "ROW"), ("GROUP",), ("TIES",), ("NO", "OTHERS"))
            if not any(self.take(*words) for words in ways):
                self.fail("CURRENT ROW, GROUP, TIES, or NO OTHERS")

    def _bound(self) -> None:
        if self.take("CURRENT", "ROW"):
            return
        if not self.take("UNBOUNDED"):
            self.operators(BETWEEN)
        if not self.take_one("PRECEDING", "FOLLOWING"):
            self.fail("PRECEDING or FOLLOWING")
