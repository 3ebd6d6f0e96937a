"""Checks expressions. The checks cover names, calls with their arguments, and whether an aggregate is allowed at its
place."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.errors import INVALID_QUERY, UNDEFINED_OBJECT
from rw_sql.plan.queries.analysis import data_types as types
from rw_sql.plan.queries.analysis import mismatches
from rw_sql.plan.queries.analysis.findings import counted
from rw_sql.plan.queries.analysis.functions import (
    AGGREGATE,
    TIME_WINDOWS,
    UNIT_FIRST,
    UNITS,
    WINDOW,
    builtins,
    hint_of_versions,
)
from rw_sql.plan.queries.analysis.mismatches import Written
from rw_sql.plan.queries.analysis.names import NameChecker
from rw_sql.plan.queries.analysis.reading import children
from rw_sql.plan.queries.analysis.result_types import parameter_types, result_type
from rw_sql.syntax.dialect.equivalents import missing_function_hint
from rw_sql.syntax.query import query_hints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.plan.queries.analysis.frames import Output, Scope

SELECT, WHERE, ON, GROUP_BY, HAVING, ORDER_BY, FROM = "SELECT", "WHERE", "ON", "GROUP BY", "HAVING", "ORDER BY", "FROM"
WITHIN = "an aggregate"
"""The words with which messages describe the place of an expression that is an argument of an aggregate. For an
expression in a clause, messages use the name of the clause, such as ``SELECT``."""

_NO_AGGREGATES = (WHERE, ON, GROUP_BY)
_TRUTHS = (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean)


class ExpressionChecker(NameChecker):
    """Checks the names, calls and operand types in expressions, and whether aggregates are allowed where they occur."""

    @abstractmethod
    def query(self, node: exp.Expr, outer: Scope | None) -> Output:
        """Checks a query or subquery, and returns its columns."""

    def expression(self, node: exp.Expr, scope: Scope, place: str) -> exp.DataType | None:
        """Checks an expression. Returns its type, or None if the type is not certain."""
        match node:
            case exp.Column():
                if isinstance(node.this, exp.Star):
                    self.star(node, scope)
                    return None
                return self.column(node, scope)
            case exp.Literal():
                self.text_named_like_column(node, scope)
                return _literal(node)
            case exp.Anonymous():
                return self._call(node, scope, place)
            case exp.Cast():
                kind = self.expression(node.this, scope, place)
                self._mismatch(node.this, mismatches.cast(kind, node.to, Written(node.this)))
                return node.to
            case exp.Paren() | exp.Alias() | exp.IgnoreNulls() | exp.RespectNulls():
                return self.expression(node.this, scope, place)
            case exp.Dot():
                return self._dot(node, scope, place)
            case exp.Bracket():
                return self._bracket(node, scope, place)
            case exp.Lambda():
                return self._lambda(node, (), scope, place)
            case exp.Window():
                return self._window(node, scope, place)
            case exp.WithinGroup() | exp.Filter():
                kind = self.expression(node.this, scope, place)
                within = WITHIN if place != FROM else place
                if isinstance(node.expression, exp.Where):
                    self.condition(node.expression.this, scope, within, "FILTER (WHERE …)")
                else:
                    self.parts(node.expression, scope, within)
                return kind
            case exp.Subquery() | exp.Query():
                return self._scalar(node, scope)
            case exp.Exists():
                self.query(node.this, scope)
                return types.BOOLEAN
            case exp.In():
                self._in(node, scope, place)
                return types.BOOLEAN
            case exp.Kwarg() | exp.PropertyEQ():
                self.expression(node.expression, scope, place)
                return None
            case exp.Identifier():
                parameter = scope.parameter(node.name.lower())
                return parameter[1] if parameter is not None else None
            case exp.Var() | exp.DataType() | exp.Star():
                return None
        parts = list(children(node))
        found = [self.expression(part, scope, place) for part in parts]
        self._check_types(node, parts, found)
        if isinstance(node, _TRUTHS):
            return types.BOOLEAN
        if isinstance(node, exp.Add | exp.Sub | exp.Mul) and len(found) == 2 and found[0] == found[1]:
            kind = found[0]
            return kind if types.is_integer(kind) or kind == types.DOUBLE else None
        return None

    def condition(self, node: exp.Expr, scope: Scope, place: str, clause: str) -> None:
        """Checks an expression that must be BOOLEAN. ``clause`` is the name of the expression's clause in messages."""
        self._require_condition(node, self.expression(node, scope, place), clause)

    def _require_condition(self, node: exp.Expr, kind: exp.DataType | None, clause: str) -> None:
        self._mismatch(node, mismatches.condition(kind, Written(node), clause))

    def _check_types(self, node: exp.Expr, parts: Sequence[exp.Expr], kinds: Sequence[exp.DataType | None]) -> None:
        """Checks the types of an operator's operands."""
        if isinstance(node, exp.Substring) and node.args.get("start") is None:
            self._mismatch(node, ('function "substring" takes 2 or 3 arguments, not 1', "write substring(…, 1, 10)"))
        if isinstance(node, exp.If) and isinstance(node.parent, exp.Case) and node.parent.this is None and parts:
            self._require_condition(parts[0], kinds[0], "CASE WHEN")
        if any(kind is not None for kind in kinds):
            wrong = mismatches.operation(node, kinds, [Written(part) for part in parts])
            if wrong is not None:
                number, *told = wrong
                self._mismatch(parts[number], (told[0], told[1]))

    def _mismatch(self, node: exp.Expr, wrong: tuple[str, str] | None) -> None:
        if wrong is not None:
            self.report.add(self.text.first_place(node), INVALID_QUERY, *wrong)

    def parts(self, node: exp.Expr, scope: Scope, place: str) -> None:
        """Checks the operands, arguments and other parts of an expression."""
        for child in children(node):
            self.expression(child, scope, place)

    def _dot(self, node: exp.Dot, scope: Scope, place: str) -> exp.DataType | None:
        part = node.expression
        if not isinstance(part, exp.Identifier):
            self.parts(part, scope, place)  # a function with its schema
            return None
        kind = self.expression(node.this, scope, place)
        return self.fields(kind, [part])

    def _bracket(self, node: exp.Bracket, scope: Scope, place: str) -> exp.DataType | None:
        kind = self.expression(node.this, scope, place)
        for index in node.expressions:
            self.expression(index, scope, place)
        return types.element_of(kind)

    def _scalar(self, node: exp.Expr, scope: Scope) -> exp.DataType | None:
        output = self.query(node, scope)
        if not output.is_open and len(output.columns) > 1:
            self._refuse_columns(node, output, "a subquery that is used as a value must return 1 column", 1)
        return output.columns[0].data_type if output.columns else None

    def _in(self, node: exp.In, scope: Scope, place: str) -> None:
        kind = self.expression(node.this, scope, place)
        for item in node.expressions:
            self.expression(item, scope, place)
        query = node.args.get("query")
        if query is None:
            return
        output = self.query(query, scope)
        wanted = len(node.this.expressions) if isinstance(node.this, exp.Tuple) else 1
        is_sure = wanted > 1 or (kind is not None and types.is_scalar(kind))
        if is_sure and not output.is_open and len(output.columns) != wanted:
            self._refuse_columns(
                query, output, f"the subquery of IN must return {counted(wanted, 'column')} here", wanted
            )

    def _refuse_columns(self, node: exp.Expr, output: Output, rule: str, wanted: int) -> None:
        while isinstance(node, exp.Subquery):
            node = node.this
        selected = node.expressions if isinstance(node, exp.Select) else []
        wrong = selected[1] if len(selected) > 1 else node
        self.report.add(
            self.text.first_place(wrong),
            INVALID_QUERY,
            f"{rule}, not {len(output.columns)}",
            f"select {counted(wanted, 'column')} in the subquery",
        )

    # Calls

    def _call(self, node: exp.Anonymous, scope: Scope, place: str) -> exp.DataType | None:
        name = node.name.lower()
        known = builtins().get(name)
        place_of_name = self.text.place(node)
        if known is None:
            if not self._is_of_user(name):
                hint = hint_of_versions(name) or missing_function_hint(name, builtins())
                self.report.add(place_of_name, UNDEFINED_OBJECT, f'function "{node.name}" does not exist', hint)
            self._arguments(node, scope, SELECT if place == WITHIN else place)
            return None
        arguments = _count(node)
        is_counted = arguments is None or known.takes(arguments)
        if not is_counted and not self._is_of_user(name):
            start = place_of_name[0] if place_of_name is not None else len(self.text.query)
            exact = known.most is not None and known.most == known.least
            surplus = query_hints.surplus_arguments(self.text.query, start, known.least) if exact else None
            self.report.add(
                surplus or place_of_name,
                INVALID_QUERY,
                f'function "{name}" takes {known.counts}, not {arguments}',
                query_hints.arguments(name, self.text.query[slice(*surplus)] if surplus else ""),
            )
        if known.kind != AGGREGATE or isinstance(node.parent, exp.Window) or _is_windowed(node):
            found = self._arguments(node, scope, place)
            if is_counted:
                self._check_arguments(node, found)
            return result_type(node, found)
        found = self._arguments(node, scope, WITHIN)
        if is_counted:
            self._check_arguments(node, found)
        if place == FROM or self._is_of_outer(node):
            return result_type(node, found)
        scope.has_aggregate = True
        if place == WITHIN:
            self.report.add(
                place_of_name,
                INVALID_QUERY,
                f'aggregate "{name}" cannot be used inside another aggregate',
                query_hints.nested(name),
            )
        elif place in _NO_AGGREGATES:
            self.report.add(
                place_of_name,
                INVALID_QUERY,
                f'aggregate "{name}" cannot be used in {place}',
                query_hints.aggregate_in(place, name, self.text.query, place_of_name[0] if place_of_name else 0),
            )
        return result_type(node, found)

    def _check_arguments(self, node: exp.Anonymous, kinds: Sequence[exp.DataType | None]) -> None:
        """Checks the argument types of a call of a built-in Spark function."""
        name, arguments = node.name.lower(), node.expressions
        if not arguments or len(arguments) != len(kinds) or self._is_of_user(name):
            return
        first = arguments[0]
        if name == "if":
            self._require_condition(first, kinds[0], "if(…)")
        elif name in TIME_WINDOWS:
            for argument in arguments[1:]:
                if isinstance(argument, exp.Literal) and argument.is_string:
                    self._mismatch(argument, mismatches.interval(argument.name))
        elif isinstance(first, exp.Expr) and not isinstance(first, exp.Distinct):
            self._mismatch(first, mismatches.first_argument(name, kinds[0], Written(first)))

    def _is_of_user(self, name: str) -> bool:
        """True if a call of the given function may refer to a user-defined function instead of a built-in function."""
        return not self.known.has_functions or (self.known.is_function is not None and self.known.is_function(name))

    def _arguments(self, node: exp.Anonymous, scope: Scope, place: str) -> list[exp.DataType | None]:
        arguments = node.expressions
        if node.name.lower() in UNIT_FIRST and arguments and _is_unit(arguments[0]):
            arguments = arguments[1:]
        found: list[exp.DataType | None] = []
        for argument in arguments:
            if isinstance(argument, exp.Lambda):
                found.append(self._lambda(argument, parameter_types(node.name.lower(), found), scope, place))
            else:
                found.append(self.expression(argument, scope, place))
        return found

    def _lambda(
        self, node: exp.Lambda, kinds: Sequence[exp.DataType | None], scope: Scope, place: str
    ) -> exp.DataType | None:
        """Checks a lambda expression, and returns the type of its result. ``kinds`` are the types of the lambda's first
        parameters. The types of the remaining parameters are unknown."""
        given = [*kinds, *[None] * len(node.expressions)]
        names = [parameter.name.lower() for parameter in node.expressions]
        scope.parameters += zip(names, given, strict=False)
        kind = self.expression(node.this, scope, place)
        del scope.parameters[len(scope.parameters) - len(names) :]
        return kind

    def _is_of_outer(self, node: exp.Expr) -> bool:
        """True if the aggregate contains columns, and all of them belong to an outer query. Such an aggregate is
        evaluated in the outer query."""
        columns = [self.resolved.get(id(column)) for column in node.find_all(exp.Column)]
        return bool(columns) and all(column is not None and column.is_outer for column in columns)

    def _window(self, node: exp.Window, scope: Scope, place: str) -> exp.DataType | None:
        kind = self.expression(node.this, scope, place)
        name = node.args.get("alias")
        if isinstance(name, exp.Identifier) and scope.windows is not None and name.name.lower() not in scope.windows:
            self.report.add(
                self.text.place(name),
                INVALID_QUERY,
                f'window "{name.name}" does not exist',
                f"add WINDOW {self.text.written(name)} AS (…) to the end of the query",
            )
        self.window_parts(node, scope, place)
        return kind

    def window_parts(self, node: exp.Window, scope: Scope, place: str) -> None:
        """Checks the PARTITION BY and ORDER BY of a window."""
        for part in node.args.get("partition_by") or ():
            self.expression(part, scope, place)
        order = node.args.get("order")
        if order is not None:
            self.parts(order, scope, place)


def _is_windowed(node: exp.Expr) -> bool:
    """True if a call has an OVER clause, even if FILTER or IGNORE NULLS is between the call and OVER."""
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup) and parent.this is node:
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def _count(node: exp.Anonymous) -> int | None:
    """Returns the number of arguments of a call; None if a star or a named argument makes the number uncertain."""
    count = 0
    for argument in node.expressions:
        while isinstance(argument, exp.Order | exp.IgnoreNulls | exp.RespectNulls):
            argument = argument.this
        if isinstance(argument, exp.Kwarg | exp.PropertyEQ):
            return None
        if isinstance(argument, exp.Star) or (isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star)):
            return None
        count += len(argument.expressions) if isinstance(argument, exp.Distinct) else 1
    return count


def _is_unit(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table and node.name.lower() in UNITS


def _literal(node: exp.Literal) -> exp.DataType | None:
    if node.is_string:
        return types.STRING
    if node.name.isdecimal():
        return types.INT if int(node.name) < 2**31 else (types.BIGINT if int(node.name) < 2**63 else None)
    return None


__all__ = ["FROM", "GROUP_BY", "HAVING", "ON", "ORDER_BY", "SELECT", "WHERE", "WINDOW", "ExpressionChecker"]
