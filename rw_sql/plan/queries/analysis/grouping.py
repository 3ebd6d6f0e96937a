"""Checks that a grouped select uses each column either in GROUP BY or inside an aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from rw_sql.errors import INVALID_QUERY
from rw_sql.plan.queries.analysis.functions import AGGREGATE, TIME_WINDOWS, builtins
from rw_sql.plan.queries.analysis.reading import children

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from rw_sql.plan.queries.analysis.findings import Report
    from rw_sql.plan.queries.analysis.names import Resolved
    from rw_sql.plan.queries.analysis.reading import Text

_COMMUTATIVE = (exp.Add, exp.Mul, exp.And, exp.Or, exp.EQ, exp.NEQ, exp.NullSafeEQ)
_SILENT = (exp.Query, exp.Star, exp.Identifier, exp.Var, exp.DataType, exp.Literal)


class Groups:
    """The grouping expressions of a select, against which the select's other expressions are checked."""

    def __init__(self, keys: Iterable[exp.Expr], resolved: Mapping[int, Resolved], text: Text, report: Report) -> None:
        self._resolved = resolved
        self._text = text
        self._report = report
        self._forms: list[Hashable] = []
        """The distinct forms of expressions. The index of a form is the form's number."""
        self._numbers: dict[Hashable, int] = {}
        self._of_nodes: dict[int, int] = {}
        self._keys: set[int] = set()
        self._parts: set[Hashable] = set()
        """The origins of the columns that are only parts of grouping expressions, such as ``a`` in ``GROUP BY a +
        1``."""
        self._reported: set[Hashable] = set()
        self._is_grouped = False
        for key in keys:
            self._is_grouped = True
            self._keys.add(self._form(key))
            inner = _bare(key)
            if not isinstance(inner, exp.Column):
                for column in inner.find_all(exp.Column):
                    found = resolved.get(id(column))
                    if found is not None:
                        self._parts.add(_identity(found.attribute.origin))

    def check(self, node: exp.Expr, *, is_whole: bool = True) -> None:
        """Reports each column of an expression that is not in GROUP BY and not inside an aggregate."""
        if isinstance(node, exp.Alias | exp.Paren | exp.Ordered):
            self.check(node.this, is_whole=is_whole)
            return
        if self._form(node) in self._keys:
            return
        if isinstance(node, exp.Column):
            self._column(node, is_whole=is_whole)
        elif isinstance(node, exp.Window):
            self._window(node)
        elif isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
            self.check(node.this, is_whole=False)
        elif isinstance(node, exp.Anonymous):
            known = builtins().get(node.name.lower())
            if known is not None and known.kind != AGGREGATE:
                self._parts_of(node)
        elif not isinstance(node, _SILENT):
            self._parts_of(node)

    def star(self, node: exp.Expr, attributes: Iterable[tuple[str, object]]) -> None:
        """Reports a star that expands to a column outside GROUP BY. ``attributes`` are the names and origins of the
        star's columns."""
        for name, origin in attributes:
            if self._number(("column", _identity(origin))) not in self._keys:
                self._refuse(self._text.first_place(node), name, name)
                return

    def _parts_of(self, node: exp.Expr) -> None:
        for child in children(node):
            self.check(child, is_whole=False)

    def _window(self, node: exp.Window) -> None:
        call = node.this
        while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
            call = call.this
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in builtins():
            return
        for argument in call.expressions:
            self.check(argument, is_whole=False)
        for part in node.args.get("partition_by") or ():
            self.check(part, is_whole=False)
        order = node.args.get("order")
        for part in order.expressions if order is not None else ():
            self.check(part, is_whole=False)

    def _column(self, node: exp.Column, *, is_whole: bool) -> None:
        found = self._resolved.get(id(node))
        if found is None or found.is_outer or found.is_output:
            return
        origin = _identity(found.attribute.origin)
        prefixes = (found.fields[:count] for count in range(len(found.fields) + 1))
        if any(self._number(("column", origin, *fields)) in self._keys for fields in prefixes):
            return
        if origin in self._parts and not (is_whole and not found.fields):
            return  # the expression around the column may equal a key that is written differently
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        first, last = self._text.place(parts[0]), self._text.place(parts[-1])
        place = (first[0], last[1]) if first is not None and last is not None else first
        written = self._text.query[slice(*place)] if place is not None else parts[-1].name
        self._refuse(place, ".".join(part.name for part in parts), written)

    def _refuse(self, place: tuple[int, int] | None, name: str, written: str) -> None:
        if name in self._reported:
            return
        self._reported.add(name)
        add = f"add {written} to GROUP BY" if self._is_grouped else f"write GROUP BY {written}"
        self._report.add(
            place,
            INVALID_QUERY,
            f'column "{name}" is neither in GROUP BY nor aggregated',
            f"{add}, or aggregate it: max({written})",
        )

    def _form(self, node: object) -> int:
        """Returns the number of the expression's form. Two expressions have the same number if they have the same
        meaning. A form contains the numbers of the expression's parts instead of their text, which keeps the form short
        even if the parts are long."""
        number = self._of_nodes.get(id(node)) if isinstance(node, exp.Expr) else None
        if number is None:
            number = self._number(self._shape(node))
            if isinstance(node, exp.Expr):
                self._of_nodes[id(node)] = number
        return number

    def _number(self, form: Hashable) -> int:
        number = self._numbers.setdefault(form, len(self._forms))
        if number == len(self._forms):
            self._forms.append(form)
        return number

    def _shape(self, node: object) -> Hashable:
        if isinstance(node, exp.Paren | exp.Alias):
            return self._forms[self._form(node.this)]
        if isinstance(node, exp.Column):
            found = self._resolved.get(id(node))
            if found is not None:
                return ("column", _identity(found.attribute.origin), *found.fields)
        if isinstance(node, exp.Identifier):
            return ("name", node.name.lower())
        if isinstance(node, exp.Literal):
            return ("literal", node.is_string, node.name)
        if isinstance(node, exp.Anonymous):
            if node.name.lower() in TIME_WINDOWS:
                return ("column", node.name.lower())
            return ("call", node.name.lower(), *map(self._form, node.expressions))
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            inner = self._forms[self._form(node.this)]
            if isinstance(inner, tuple) and inner[0] == "column":
                return (*inner, node.expression.name.lower())
        if isinstance(node, _COMMUTATIVE):
            return (type(node).__name__, *sorted((self._form(node.this), self._form(node.expression))))
        if isinstance(node, exp.Expr):
            values = ((name, value) for name, value in node.args.items() if value not in (None, False, []))
            return (type(node).__name__, *((name, self._form(value)) for name, value in values))
        if isinstance(node, list):
            return ("list", *map(self._form, node))
        return str(node).lower()


def _identity(origin: object) -> Hashable:
    return origin if isinstance(origin, str) else id(origin)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren | exp.Alias):
        node = node.this
    return node
