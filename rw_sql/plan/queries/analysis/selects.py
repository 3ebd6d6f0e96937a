"""Checks queries: selects and their clauses, set operations, WITH, VALUES."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from rw_sql.errors import DUPLICATE_OBJECT, INVALID_QUERY
from rw_sql.plan.queries.analysis import data_types as types
from rw_sql.plan.queries.analysis.expressions import GROUP_BY, HAVING, ORDER_BY, SELECT, WHERE
from rw_sql.plan.queries.analysis.findings import counted
from rw_sql.plan.queries.analysis.frames import Attribute, Frame, Output, Scope, Unknown, is_unknown
from rw_sql.plan.queries.analysis.functions import GENERATOR, TIME_WINDOWS, builtins
from rw_sql.plan.queries.analysis.grouping import Groups
from rw_sql.plan.queries.analysis.relations import RelationChecker
from rw_sql.syntax.query import query_hints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class QueryChecker(RelationChecker):
    """Checks complete queries: the clauses of selects, set operations, WITH and VALUES."""

    def query(self, node: exp.Expr, outer: Scope | None) -> Output:
        """Checks a query; returns its columns."""
        named = node.args.get("with_")
        if named is not None:
            self.named_queries.append({})
            self._with(named, outer)
        output = self._body(node, outer)
        if named is not None:
            self.named_queries.pop()
        return output

    def _body(self, node: exp.Expr, outer: Scope | None) -> Output:
        match node:
            case exp.Select():
                return self._select(node, outer)
            case exp.SetOperation():
                return self._set_operation(node, outer)
            case exp.Subquery() | exp.Paren():
                output = self.query(node.this, outer)
                self._tail(node, output, Scope(Frame(), outer))
                return output
            case exp.Values():
                return self._values(node, outer)
            case exp.Table():
                return self.relation(node).read_as("")
        self.report.leave()
        return Output(is_open=True)

    def _with(self, clause: exp.With, outer: Scope | None) -> None:
        own = self.named_queries[-1]
        for part in clause.expressions:
            alias = part.args["alias"]
            name = alias.this.name.lower()
            if name in own:
                self.report.add(
                    self.text.place(alias.this),
                    DUPLICATE_OBJECT,
                    f'WITH names "{alias.this.name}" twice',
                    "give one of the two queries another name",
                )
            if clause.args.get("recursive"):
                own[name] = self._anchor(part, outer)
            output = self.query(part.this, outer)
            own[name] = self._renamed(output, alias)

    def _anchor(self, part: exp.CTE, outer: Scope | None) -> Output:
        """The columns of a recursive query, which are the columns of the first query of its UNION."""
        if not isinstance(part.this, exp.SetOperation):
            return Output(is_open=True)
        return self._renamed(self.query(part.this.left, outer), part.args["alias"])

    def _renamed(self, output: Output, alias: exp.TableAlias) -> Output:
        names = alias.columns
        if not names:
            return output
        if output.is_open:
            return Output([Attribute(name.name, "", None, object()) for name in names])
        if len(names) != len(output.columns):
            self.report.add(
                self.text.place(names[0]),
                INVALID_QUERY,
                f'the query "{alias.this.name}" has {counted(len(output.columns), "column")}, but WITH names '
                f"{len(names)}",
                "name every column in WITH, or none",
            )
            return Output(output.columns, is_open=True)
        pairs = zip(output.columns, names, strict=True)
        return Output([Attribute(name.name, "", column.data_type, _renamed(column)) for column, name in pairs])

    # Select

    def _select(self, node: exp.Select, outer: Scope | None) -> Output:
        frame = self.frame(node, outer)
        self._add_windows(node, frame)
        scope = Scope(frame, outer)
        windows = {window.this.name.lower(): window for window in node.args.get("windows") or ()}
        where = node.args.get("where")
        if where is not None:
            self.condition(where.this, Scope(frame, outer), WHERE, "WHERE")
        scope.windows = windows
        for window in windows.values():
            self.window_parts(window, scope, SELECT)
        output, items = Output(), []
        for item in node.expressions:
            columns = self._item(item, scope)
            output.columns += columns.columns
            output.is_open |= columns.is_open
            items.append((item, columns))
            if not item.is_star and len(columns.columns) == 1 and columns.columns[0].name:
                # Later items may use this column, unless FROM has a column with the same name.
                scope.outputs.setdefault(columns.columns[0].name.lower(), []).append(columns.columns[0])
        keys = self._keys(node, output, items, scope)
        having, qualify = node.args.get("having"), node.args.get("qualify")
        behind = scope.with_outputs(output.columns, first=False)
        for clause in (having, qualify):
            if clause is not None:
                self.condition(clause.this, behind, HAVING, "QUALIFY" if clause is qualify else "HAVING")
        tail = scope.with_outputs(output.columns, first=True)
        self._tail(node, output, tail)
        has_groups = node.args.get("group") is not None or having is not None
        if has_groups or any(one.has_aggregate for one in (scope, behind, tail)):
            self._check_groups(node, keys, items)
        return output

    def _add_windows(self, node: exp.Select, frame: Frame) -> None:
        """If a select calls ``window(…)`` or ``session_window(…)``, adds a column with the function's name to the scope
        of the select."""
        clauses = [*node.expressions, node.args.get("group")]
        for clause in clauses:
            if clause is None:
                continue
            for call in clause.find_all(exp.Anonymous):
                name = call.name.lower()
                if name in TIME_WINDOWS and not frame.visible(name):
                    frame.add(Output([Attribute(name, "", types.WINDOW, name)]), "")

    def _item(self, item: exp.Expr, scope: Scope) -> Output:
        """Checks an item of the SELECT list; returns its columns."""
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            output = self.star(item, scope)
            return Output([a for a in output.columns if a.origin not in TIME_WINDOWS], output.is_open)
        inner = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
        kind = self.expression(inner, scope, SELECT)
        if isinstance(item, exp.Aliases):
            return Output([Attribute(name.name, "", None, object()) for name in item.expressions])
        generator = self._generator(inner, scope)
        if generator is not None:
            if not isinstance(item, exp.Alias):
                return generator
            if len(generator.columns) == 1:
                kind = generator.columns[0].data_type
        origin: object = object()
        if isinstance(inner, exp.Column):
            found = self.resolved.get(id(inner))
            if found is None and id(inner) not in self.unchecked:
                origin = Unknown()
            elif found is not None and not found.fields and not found.is_outer:
                origin = found.attribute.origin
        if isinstance(item, exp.Alias):
            # A column that gets another name also gets a new origin.
            same = origin if isinstance(inner, exp.Column) and inner.name.lower() == item.alias.lower() else object()
            return Output([Attribute(item.alias, "", kind, same)])
        return Output([Attribute(_name_of(inner), "", kind, origin)])

    def _generator(self, node: exp.Expr, scope: Scope) -> Output | None:
        if not isinstance(node, exp.Anonymous):
            return None
        known = builtins().get(node.name.lower())
        if known is None:
            return None if self.known.has_functions else Output(is_open=True)
        if known.kind != GENERATOR:
            return None
        columns = self.generated(node, scope)
        return Output([Attribute(name, "", kind, object()) for name, kind in columns or ()], columns is None)

    # GROUP BY

    def _keys(
        self, node: exp.Select, output: Output, items: Sequence[tuple[exp.Expr, Output]], scope: Scope
    ) -> list[exp.Expr] | None:
        """Checks GROUP BY. Returns the grouping expressions; None if they are unknown."""
        group = node.args.get("group")
        if group is None:
            return []
        if group.args.get("all") or group.args.get("totals"):
            return None
        named = scope.with_outputs(output.columns, first=False)
        before = len(self.report.findings)
        keys: list[exp.Expr] | None = []
        for key in _grouped(group):
            position = _position(key)
            found: exp.Expr | None = key
            if position is not None:
                found = self._at_position(key, position, output, items, "GROUP BY")
            else:
                self.expression(key, named, GROUP_BY)
                column = self.resolved.get(id(key)) if isinstance(key, exp.Column) else None
                if column is not None and column.is_output:
                    found = next((item for item, columns in items if column.attribute in columns.columns), None)
            if found is None or keys is None:
                keys = None
            else:
                keys.append(found)
        return keys if len(self.report.findings) == before else None

    def _at_position(
        self,
        node: exp.Expr,
        position: int,
        output: Output,
        items: Sequence[tuple[exp.Expr, Output]],
        clause: str,
    ) -> exp.Expr | None:
        """The item of the SELECT list to which a number in GROUP BY or ORDER BY refers."""
        if output.is_open:
            return None
        if not 1 <= position <= len(output.columns):
            self.report.add(
                self.text.first_place(node),
                INVALID_QUERY,
                f"{clause} {position} is out of range: the query has {counted(len(output.columns), 'column')}",
                f"write a position from 1 to {len(output.columns)}, or a column's name",
            )
            return None
        at = 0
        for item, columns in items:
            at += len(columns.columns)
            if position <= at:
                return item if len(columns.columns) == 1 else None
        return None

    def _check_groups(
        self, node: exp.Select, keys: list[exp.Expr] | None, items: Sequence[tuple[exp.Expr, Output]]
    ) -> None:
        if keys is None:
            return
        groups = Groups(keys, self.resolved, self.text, self.report)
        for item, columns in items:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                if not columns.is_open and not isinstance(item.parent, exp.Count):
                    groups.star(item, ((column.name, column.origin) for column in columns.columns))
            else:
                groups.check(item)
        having, order = node.args.get("having"), node.args.get("order")
        if having is not None:
            groups.check(having.this)
        for part in order.expressions if order is not None else ():
            groups.check(part)

    # The clauses after a query

    def _tail(self, node: exp.Expr, output: Output, scope: Scope) -> None:
        """Checks ORDER BY, LIMIT and OFFSET."""
        scope = scope if scope.outputs or not output.columns else scope.with_outputs(output.columns, first=True)
        scope.frame.is_open |= output.is_open
        scope.frame.is_unsure |= output.is_open
        for name in ("order", "sort", "cluster", "distribute"):
            clause = node.args.get(name)
            for part in clause.expressions if clause is not None else ():
                key = part.this if isinstance(part, exp.Ordered) else part
                position = _position(key)
                if position is not None and name in ("order", "sort"):
                    self._at_position(key, position, output, (), "ORDER BY")
                elif not isinstance(node, exp.Select) and any(c.table for c in key.find_all(exp.Column)):
                    self.report.leave()  # names may be qualified by a relation in the first query of the set operation
                elif not (isinstance(key, exp.Column) and not key.table and key.name.lower() == "all"):
                    self.expression(key, scope, ORDER_BY)
        for name in ("limit", "offset"):
            clause = node.args.get(name)
            value = clause.args.get("expression") if clause is not None else None
            if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal) and not value.this.is_string:
                self.report.add(
                    self.text.first_place(value),
                    INVALID_QUERY,
                    f"{name.upper()} -{value.this.name} is negative",
                    f"write {name.upper()} {value.this.name}",
                )

    # Set operations and VALUES

    def _set_operation(self, node: exp.SetOperation, outer: Scope | None) -> Output:
        # Uses a loop, because the tree of a long UNION is so deep that recursion would reach Python's limit.
        chain = [node]
        while isinstance(chain[-1].left, exp.SetOperation) and not chain[-1].left.args.get("with_"):
            chain.append(chain[-1].left)
        output = self.query(chain[-1].left, outer)
        for operation in reversed(chain):
            right = self.query(operation.right, outer)
            output = self._united(operation, output, right)
            self._tail(operation, output, Scope(Frame(), outer))
        return output

    def _united(self, node: exp.SetOperation, left: Output, right: Output) -> Output:
        if node.args.get("by_name"):
            self.report.leave()
            return Output(is_open=True)
        if left.is_open or right.is_open:
            return Output([] if left.is_open else left.read_as("").columns, left.is_open)
        if len(left.columns) != len(right.columns):
            first = self.text.first_place(node.right)
            word = {exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}.get(type(node), "UNION")
            self.report.add(
                self.text.keyword(first, (TokenType.SELECT, TokenType.VALUES)),
                INVALID_QUERY,
                f"the queries of {word} need the same number of columns, "
                f"not {len(left.columns)} and {len(right.columns)}",
                query_hints.unlike_queries(len(left.columns), len(right.columns)),
            )
        both = zip(left.columns, right.columns, strict=False)
        kinds = [a.data_type if a.data_type == b.data_type else None for a, b in both]
        return Output(
            [
                Attribute(
                    column.name,
                    "",
                    kinds[i] if i < len(kinds) else None,
                    column.origin if is_unknown(column) else object(),
                )
                for i, column in enumerate(left.columns)
            ]
        )

    def _values(self, node: exp.Values, outer: Scope | None) -> Output:
        scope = Scope(Frame(), outer)
        widths = set()
        for row in node.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            widths.add(len(cells))
            if len(widths) > 1:
                self.report.add(
                    self.text.first_place(row) or self.text.first_place(node),
                    INVALID_QUERY,
                    "the rows of VALUES have different numbers of columns",
                    "give each row a value for every column",
                )
                return Output(is_open=True)
            for cell in cells:
                self.expression(cell, scope, SELECT)
        (width,) = widths or {0}
        return Output([Attribute(f"col{i}", "", None, object()) for i in range(1, width + 1)])


def _renamed(column: Attribute) -> object:
    """Returns the origin of a column to which WITH gives a new name. The new name exists even if no relation has the
    original column."""
    return object() if is_unknown(column) else column.origin


def _name_of(node: exp.Expr) -> str:
    """The name of a column without an alias; ``""`` if Spark generates the name."""
    if isinstance(node, exp.Column):
        return str(node.name)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return str(node.expression.name)
    if isinstance(node, exp.Anonymous) and node.name.lower() in TIME_WINDOWS:
        return str(node.name.lower())
    return ""


def _grouped(group: exp.Group) -> Iterator[exp.Expr]:
    """The expressions of GROUP BY, including the expressions in ROLLUP, CUBE and GROUPING SETS."""
    parts = list(group.expressions)
    for name in ("grouping_sets", "cube", "rollup"):
        parts += [part for part in group.args.get(name) or () if isinstance(part, exp.Expr)]
    while parts:
        part = parts.pop(0)
        if isinstance(part, exp.GroupingSets | exp.Cube | exp.Rollup | exp.Tuple):
            parts = [*part.expressions, *parts]
        elif isinstance(part, exp.Paren):
            parts.insert(0, part.this)
        else:
            yield part


def _position(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
        return int(node.name)
    return None
