"""Checks the items of FROM: relations, joins, subqueries, generators, and functions that return tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from rw_sql.errors import INVALID_QUERY, UNDEFINED_COLUMN, UNDEFINED_OBJECT, near_names
from rw_sql.plan.queries.analysis import data_types as types
from rw_sql.plan.queries.analysis.expressions import FROM, ON, ExpressionChecker
from rw_sql.plan.queries.analysis.findings import counted
from rw_sql.plan.queries.analysis.frames import Attribute, Frame, Output, Scope
from rw_sql.plan.queries.analysis.functions import GENERATOR, TABLE, builtins, hint_of_versions
from rw_sql.syntax.dialect.equivalents import missing_function_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLIC = "public"
"""The default schema. In a query, the schema's name before the name of one of its relations is optional."""

_UNCHECKED_FUNCTIONS = ("identifier", "table", "table_changes", "table_changes_by_path")
"""Names that can be called like functions in FROM although they are not among Spark's functions: keywords of Spark's
grammar, and functions of Delta."""

_NARROW = ("SEMI", "ANTI")


def _where_else(name: str, others: Sequence[str]) -> str | None:
    """The hint for an unknown relation, if other schemas have a relation with the same name."""
    if not others:
        return None
    written = [other if "." in other else f"{PUBLIC}.{other}" for other in others]
    return f'"{name}" is in another schema: write {" or ".join(written)}'


class RelationChecker(ExpressionChecker):
    """Checks the items of FROM, including the expressions in joins and function calls."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.named_queries: list[dict[str, Output]] = []
        """The named queries of the enclosing WITH clauses. The queries of the innermost clause are the last item."""

    def frame(self, select: exp.Expr, outer: Scope | None) -> Frame:
        """Reads the FROM of a select."""
        frame = Frame()
        start = select.args.get("from_")
        if start is not None:
            self._read(frame, start.this, outer)
        for join in select.args.get("joins") or ():
            self._join(frame, join, outer)
        for lateral in select.args.get("laterals") or ():
            self._lateral_view(frame, lateral, outer)
        if select.args.get("pivots"):
            self._unknown(frame)
        return frame

    def _read(self, frame: Frame, node: exp.Expr, outer: Scope | None) -> None:
        """Adds the columns of one item of FROM. ``frame`` contains the earlier items, whose columns a LATERAL item can
        use."""
        match node:
            case exp.Table():
                self._table(frame, node, outer)
            case exp.Lateral():
                self._lateral(frame, node, outer)
            case exp.Unnest():
                self._unnest(frame, node)
            case exp.Values():
                output = self.query(node, outer)
                self._add(frame, output, node)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                inner = Frame()
                self._read(inner, node.this, outer)
                if node.alias:
                    self._add(frame, inner.expanded(), node)
                else:
                    frame.merge(inner)
            case exp.Subquery():
                self._add(frame, self.query(node, outer), node)
            case _:
                self.report.leave()
                self._add(frame, Output(is_open=True), node)
        for name in ("laterals", "joins"):
            for part in node.args.get(name) or ():
                if name == "joins":
                    self._join(frame, part, outer)
                else:
                    self._lateral_view(frame, part, outer)

    def _add(self, frame: Frame, output: Output, node: exp.Expr, name: str = "") -> None:
        """Adds the columns of a relation. A relation alias and the column names in the alias replace the original
        names."""
        alias = node.args.get("alias")
        qualifier = (node.alias or name).lower()
        found = output.read_as(qualifier)
        renamed = alias.columns if isinstance(alias, exp.TableAlias) else []
        if renamed:
            if not output.is_open and len(renamed) != len(found.columns):
                self.report.add(
                    self.text.place(renamed[0]),
                    INVALID_QUERY,
                    f'"{qualifier}" has {counted(len(found.columns), "column")}, but its alias names {len(renamed)}',
                    "name every column in the alias, or none",
                )
                found = Output(found.columns, is_open=True)
            elif output.is_open:
                found = Output([Attribute(part.name, qualifier, None, object()) for part in renamed])
            else:
                pairs = zip(found.columns, renamed, strict=True)
                found = Output([column.moved(name=part.name) for column, part in pairs])
        if node.args.get("pivots"):
            found = self._pivoted(node, found, frame)
            qualifier = ""
        frame.add(found, qualifier)

    def _pivoted(self, node: exp.Expr, found: Output, frame: Frame) -> Output:
        """The result of PIVOT or UNPIVOT on a relation. The columns of the result are unknown."""
        self.report.leave()
        inner = Frame()
        inner.add(found, (node.alias or node.name).lower())
        for pivot in node.args["pivots"]:
            frame.relations[(pivot.alias or "").lower()] = True
        (first, *_) = node.args["pivots"]
        if not first.args.get("unpivot"):
            for call in first.expressions:
                self.expression(call, Scope(inner, None), FROM)
        return Output(is_open=True)

    def _unknown(self, frame: Frame) -> None:
        self.report.leave()
        frame.add(Output(is_open=True), "")

    # Relations by name

    def _table(self, frame: Frame, node: exp.Table, outer: Scope | None) -> None:
        if isinstance(node.this, exp.Anonymous):
            self._table_function(frame, node, node.this, outer)
            return
        if not isinstance(node.this, exp.Identifier):
            self.report.leave()
            self._add(frame, Output(is_open=True), node)
            return
        self._add(frame, self.relation(node), node, node.name)

    def relation(self, node: exp.Table) -> Output:
        """The columns of the relation to which a node of the tree refers."""
        name, schema = node.name.lower(), node.db.lower()
        if not schema:
            for named in reversed(self.named_queries):
                if name in named:
                    return named[name]
        known = self.known.relations
        key = name if schema in ("", PUBLIC) else f"{schema}.{name}"
        if not node.catalog and key in known:
            columns = known[key]
            if columns is None:
                self.report.leave()
                return Output(is_open=True)
            return Output([Attribute(c.name, "", types.data_type(c.data_type or ""), object()) for c in columns])
        written = ".".join(part.name for part in node.parts)
        asked = self.known.is_relation
        is_path = bool(schema) and "/" in node.name
        if (asked is None and schema in ("", PUBLIC) and not node.catalog) or (
            asked is not None and not is_path and not asked(written)
        ):
            own = [other for named in self.named_queries for other in named]
            near = near_names(name, [*known, *own], most=1)
            elsewhere = sorted(other for other in known if other != key and other.rpartition(".")[2] == name)
            self.report.add(
                self.text.place(node.this),
                UNDEFINED_OBJECT,
                f'relation "{written}" does not exist',
                _where_else(name, elsewhere)
                or (f'did you mean "{near[0]}"?' if near else "SHOW SOURCES lists the sources that a query can read"),
            )
            return Output(is_open=True, is_missing=True)
        self.report.leave()
        return Output(is_open=True)

    def _table_function(self, frame: Frame, node: exp.Expr, call: exp.Anonymous, outer: Scope | None) -> None:
        name = call.name.lower()
        if name in ("tumble", "hop") and not self.known.has_functions:
            self._time_window(frame, node, call, outer)
            return
        columns = None
        if self._is_table_function(call):
            columns = [("id", types.BIGINT)] if name == "range" else self._generated(call, Scope(frame, outer))
        if columns is None:
            self.report.leave()
        output = Output([Attribute(c, "", kind, object()) for c, kind in columns or ()], columns is None)
        self._add(frame, output, node, name)

    def _is_table_function(self, call: exp.Anonymous) -> bool:
        """True if Spark has the table function that is called. Reports a function that Spark does not have."""
        name = call.name.lower()
        known = builtins().get(name)
        if name in _UNCHECKED_FUNCTIONS or self._is_of_user(name):
            return False
        if known is not None:
            return known.kind in (TABLE, GENERATOR)
        tables = [other for other, found in builtins().items() if found.kind in (TABLE, GENERATOR)]
        hint = hint_of_versions(name) or missing_function_hint(name, tables, in_from=True)
        self.report.add(self.text.place(call), UNDEFINED_OBJECT, f'function "{call.name}" in FROM does not exist', hint)
        return False

    def _time_window(self, frame: Frame, node: exp.Expr, call: exp.Anonymous, outer: Scope | None) -> None:
        """Reads ``TUMBLE(relation, column, …)`` or ``HOP``. Adds the relation's columns, and the columns for the start
        and the end of the window."""
        relation, *others = call.expressions
        table = (
            exp.Table(this=relation.this, db=relation.args.get("table")) if isinstance(relation, exp.Column) else None
        )
        if table is None:
            self.report.leave()
            self._add(frame, Output(is_open=True), node)
            return
        found = self.relation(table).read_as(table.name.lower())
        inner = Frame()
        inner.add(found, table.name.lower())
        for part in others[:1]:
            self.expression(part, Scope(inner, outer), FROM)
        ends = [Attribute(name, "", types.TIMESTAMP, object()) for name in ("window_start", "window_end")]
        self._add(frame, Output([*found.columns, *ends], found.is_open), node, table.name)

    # LATERAL

    def _lateral(self, frame: Frame, node: exp.Lateral, outer: Scope | None) -> None:
        around = Scope(frame, outer)
        if isinstance(node.this, exp.Subquery):
            self._add(frame, self.query(node.this, around), node)
        elif isinstance(node.this, exp.Anonymous):
            self._table_function(frame, node, node.this, around)
        elif isinstance(node.this, exp.Unnest):
            self._unnest(frame, node.this)
        else:
            self.report.leave()
            self._add(frame, Output(is_open=True), node)

    def _unnest(self, frame: Frame, node: exp.Unnest) -> None:
        """Reports ``unnest(array)``, because Spark has no such function. The call is not reported if a user may have
        defined a function with this name; the columns of the call are then unknown."""
        if not self._is_of_user("unnest"):
            place = self.text.keyword(self.text.first_place(node), [TokenType.UNNEST])
            hint = missing_function_hint("unnest", (), in_from=True)
            self.report.add(place, UNDEFINED_OBJECT, 'function "unnest" in FROM does not exist', hint)
        self.report.leave()
        self._add(frame, Output(is_open=True), node)

    def _lateral_view(self, frame: Frame, node: exp.Expr, outer: Scope | None) -> None:
        if not isinstance(node, exp.Lateral):
            self.report.leave()
            frame.add(Output(is_open=True), "")
            return
        if not node.args.get("view"):
            self._lateral(frame, node, outer)
            return
        columns = self._generated(node.this, Scope(frame, outer))
        self._add(frame, Output([Attribute(c, "", kind, object()) for c, kind in columns or ()], columns is None), node)

    def _generated(self, call: exp.Expr, scope: Scope) -> list[tuple[str, exp.DataType | None]] | None:
        """Checks the call of a generator function. Returns the columns that the function generates; None if these
        columns are unknown."""
        self.expression(call, scope, FROM)
        if not isinstance(call, exp.Anonymous) or not call.expressions:
            return None
        return self.generated(call, scope)

    def generated(self, call: exp.Anonymous, scope: Scope) -> list[tuple[str, exp.DataType | None]] | None:
        """The columns of a generator call that has already been checked."""
        name = call.name.lower().removesuffix("_outer")
        if name == "json_tuple":
            return [(f"c{i}", types.STRING) for i in range(len(call.expressions) - 1)]
        if name not in ("explode", "posexplode", "inline") or not call.expressions:
            return None
        kind = self.expression(call.expressions[0], scope, FROM)
        if name == "inline":
            return types.fields_of(types.element_of(kind))
        before: list[tuple[str, exp.DataType | None]] = [("pos", types.INT)] if name == "posexplode" else []
        if types.is_array(kind):
            return [*before, ("col", types.element_of(kind))]
        if types.is_map(kind):
            return [*before, ("key", types.key_of(kind)), ("value", types.element_of(kind))]
        return None

    # Joins

    def _join(self, frame: Frame, join: exp.Join, outer: Scope | None) -> None:
        right = Frame()
        if isinstance(join.this, exp.Lateral):
            right.merge(frame)
            self._read(right, join.this, outer)
            added = right.attributes[len(frame.attributes) :]
            narrowed = Frame()
            narrowed.merge(right)
            narrowed.replace(added)
            right = narrowed
        else:
            self._read(right, join.this, outer)
        using = join.args.get("using") or []
        is_natural = join.method.upper() == "NATURAL"
        kind = join.kind.upper()
        if is_natural or using:
            self._merge_columns(frame, right, using, is_natural=is_natural, join=join)
            return
        merged = Frame()
        merged.merge(frame)
        merged.merge(right)
        condition = join.args.get("on")
        if condition is not None:
            self.condition(condition, Scope(merged, outer), ON, "ON")
        if kind not in _NARROW:
            frame.merge(right)

    def _merge_columns(
        self, frame: Frame, right: Frame, using: Sequence[exp.Expr], *, is_natural: bool, join: exp.Join
    ) -> None:
        """Merges the equally named columns of the two sides of a join with USING or NATURAL.

        Each merged column appears once, before all other columns. A query can use the right side's column only with its
        relation as the qualifier.
        """
        if is_natural:
            if frame.is_open or right.is_open:
                names = None
            else:
                both = {a.name.lower() for a in right.expanded().columns}
                names = [a.name.lower() for a in frame.expanded().columns if a.name.lower() in both]
        else:
            names = [part.name.lower() for part in using]
            for part in using:
                for side in (frame, right):
                    self._require_in(side, part)
        if join.kind.upper() in _NARROW:
            return
        if names is None or any(len(one.visible(name)) != 1 for name in names for one in (frame, right)):
            frame.merge(right)
            frame.replace(a.moved(is_hidden=True) if names and a.name.lower() in names else a for a in frame.attributes)
            frame.is_open = frame.is_unsure = True
            self.report.leave()
            return
        keys, hidden = [], []
        for name in names:
            (left_key,), (right_key,) = frame.visible(name), right.visible(name)
            if join.side.upper() == "FULL":
                keys.append(Attribute(left_key.name, "", left_key.data_type, object()))
                hidden += [left_key.moved(is_hidden=True), right_key.moved(is_hidden=True)]
            elif join.side.upper() == "RIGHT":
                keys.append(right_key)
                hidden.append(left_key.moved(is_hidden=True))
            else:
                keys.append(left_key)
                hidden.append(right_key.moved(is_hidden=True))
        merged = {id(a) for name in names for one in (frame, right) for a in one.visible(name)}
        rest = [a for a in (*frame.attributes, *right.attributes) if id(a) not in merged]
        frame.merge(right)
        frame.replace([*keys, *rest, *hidden])

    def _require_in(self, side: Frame, part: exp.Expr) -> None:
        name = part.name.lower()
        if side.is_open or side.visible(name):
            return
        columns = [a.name for a in side.expanded().columns]
        relations = " and ".join(relation for relation in side.relations if relation) or "one side of the join"
        near = near_names(part.name, columns, most=1)
        self.report.add(
            self.text.place(part),
            UNDEFINED_COLUMN,
            f'column "{part.name}" of USING does not exist in {relations}',
            f'did you mean "{near[0]}"?'
            if near
            else f"write ON a_condition; the columns of {relations} are {', '.join(columns[:8])}",
        )
