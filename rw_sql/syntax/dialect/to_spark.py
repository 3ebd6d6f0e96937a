"""Translates RisingWave's SQL to Spark's, for ``SET query_dialect = 'risingwave'``.

The library sqlglot parses RisingWave's dialect and generates Spark's dialect. This module handles the constructs whose
meaning sqlglot's translation alone would change. Types, functions and operators that are not in :mod:`.lists` are
refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_EXPRESSION, NOT_SUPPORTED, Span, SqlError
from rw_sql.syntax.dialect.equivalents import EPOCH, EQUIVALENTS, ONE_ROW_PER_KEY, SORTED, advice
from rw_sql.syntax.dialect.known_values import (
    cast_type,
    is_fraction,
    is_index,
    is_positive,
    is_whole,
    json_path,
    json_root,
)
from rw_sql.syntax.dialect.lists import (
    AGGREGATES,
    ALIASED_AS,
    ANONYMOUS,
    CLAUSES,
    EXACT_UNITS,
    EXTRACTED,
    FUNCTIONS,
    TRUNCATED,
    TYPES,
)
from rw_sql.syntax.lexing.tokens import BACKQUOTED, scan
from rw_sql.syntax.query.tables_read import tables_of

if TYPE_CHECKING:
    from sqlglot import exp

    from rw_sql.syntax.statements import Query, Watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkQuery:
    """A translated query in Spark's SQL, and the tables that it reads.

    ``time_column`` is the column from which the query forms time windows; None if the query forms no windows.
    """

    text: str
    tables: tuple[str, ...] = ()
    time_column: str | None = None


def to_spark(query: Query, *, is_emit_on_window_close: bool = False) -> SparkQuery:
    """Translates a query to Spark's SQL.

    TUMBLE and HOP become Spark's ``window``. EMIT ON WINDOW CLOSE is accepted only in a query with TUMBLE or HOP. A
    query with EMIT ON WINDOW CLOSE must run in append mode, with its source's watermark. Raises SqlError NOT_SUPPORTED
    for constructs that would have another meaning in Spark.
    """
    from sqlglot import ErrorLevel, exp, parse_one
    from sqlglot.errors import SqlglotError, UnsupportedError

    try:
        tree = parse_one(query.text, read="risingwave")
    except (SqlglotError, RecursionError) as error:
        raise SqlError(
            NOT_SUPPORTED,
            "this query cannot be translated from RisingWave's SQL to Spark's",
            hint=_IN_SPARKS_SQL,
            span=query.span,
        ) from error
    writer = _Writer(query)
    if isinstance(tree, exp.Values):
        writer.refuse("VALUES as a query", "write SELECT 1 AS a UNION ALL SELECT 2", tree)
    if not isinstance(tree, exp.Query):
        raise SqlError(INVALID_EXPRESSION, "this is not a query", span=query.span, hint="write SELECT …")
    writer.name_columns(tree)
    tree = writer.rewrite_windows(tree)
    writer.check(tree)
    # The nodes are rewritten from the leaves up, so that the children in a replacement are already rewritten.
    for node in reversed(list(tree.walk())):
        replacement = writer.rewrite(node)
        if replacement is not node:
            node.replace(replacement)
    if is_emit_on_window_close and writer.time_column is None:
        writer.refuse("EMIT ON WINDOW CLOSE without TUMBLE or HOP", "group by a window's window_start", tree)
    try:
        # A generator that only warned would omit unsupported clauses, and so change the meaning of the query.
        text = tree.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise SqlError(
            NOT_SUPPORTED,
            "this query has a clause that has no equivalent in Spark",
            hint=_IN_SPARKS_SQL,
            span=query.span,
        ) from error
    return SparkQuery(text=text, tables=tables_of(tree), time_column=writer.time_column)


_IN_SPARKS_SQL = "SET query_dialect = 'spark', and write the query in Spark's SQL"

_LITERAL_INTERVAL = re.compile(r"\s*([0-9]{1,15})\s*([a-z]+)\s*", re.IGNORECASE)


def watermark_delay(watermark: Watermark) -> str:
    """Returns the delay in ``c - INTERVAL 'delay'`` in the form for Spark's ``withWatermark``, such as ``10 minutes``.

    Raises SqlError NOT_SUPPORTED for other expressions, because a watermark in Spark is a column minus a constant.
    """
    from sqlglot import exp, parse_one

    tree = parse_one(_in_double_quotes(watermark.expression.text), read="risingwave", into=exp.Condition)
    if isinstance(tree, exp.Column) and tree.name == watermark.column:
        return "0 seconds"
    if isinstance(tree, exp.Sub) and isinstance(tree.this, exp.Column) and tree.this.name == watermark.column:
        parts = _interval_parts(tree.expression)
        if parts is not None:
            return f"{parts[0]} {parts[1].lower()}s"
    raise SqlError(
        NOT_SUPPORTED,
        f"Spark supports no watermark like {watermark.expression.text}",
        hint=f"write {watermark.column} - INTERVAL '10' MINUTE",
        span=watermark.expression.span,
    )


def _in_double_quotes(text: str) -> str:
    """Returns an expression with double quotes instead of the backticks around names."""
    for token in reversed(scan(text)):
        if token.kind == BACKQUOTED:
            name = token.value.replace('"', '""')
            text = f'{text[: token.start]}"{name}"{text[token.end :]}'
    return text


def _interval_parts(node: exp.Expr | None) -> tuple[int, str] | None:
    """An interval's number and unit; None unless the interval is one whole number of a unit that has a fixed length."""
    from sqlglot import exp

    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    text, unit = node.this.name, node.unit.name if node.unit is not None else ""
    match = _LITERAL_INTERVAL.fullmatch(f"{text} {unit}" if unit else text)
    if match is None:
        return None
    known = match[2].upper().removesuffix("S")
    return (int(match[1]), known) if known in EXACT_UNITS else None


class _Writer:
    """Checks one query's tree, and rewrites it to its equivalent in Spark."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.time_column: str | None = None

    def refuse(self, what: str, instead: str | None, node: exp.Expr) -> None:
        """Raises SqlError NOT_SUPPORTED. If the position of the node is known, the error points at the node."""
        raise SqlError(
            NOT_SUPPORTED,
            f"{what} has no equivalent in Spark",
            hint=instead or _IN_SPARKS_SQL,
            span=self._place(node),
        )

    def _place(self, node: exp.Expr) -> Span:
        whole = self._query.span
        for found in node.walk():
            start, end = found.meta.get("start"), found.meta.get("end")
            if isinstance(start, int) and isinstance(end, int):
                before = self._query.text[:start]
                line = whole.line + before.count("\n")
                column = start - before.rfind("\n") if "\n" in before else whole.column + start
                return Span(whole.start + start, whole.start + end + 1, line, column)
        return whole

    # Names

    def name_columns(self, tree: exp.Query) -> None:
        """Names unnamed columns as RisingWave does, such as ``count`` for ``count(*)``, and folds names to lower
        case."""
        from sqlglot import exp

        for identifier in tree.find_all(exp.Identifier):
            if not identifier.quoted:
                identifier.set("this", identifier.name.lower())
        select: exp.Expr | None = tree
        while isinstance(select, (exp.SetOperation, exp.Subquery)):
            select = select.this
        if not isinstance(select, exp.Select):
            return
        for item in list(select.expressions):
            if isinstance(item, (exp.Alias, exp.Column, exp.Star)) or item.is_star:
                continue
            item.replace(exp.alias_(item.copy(), _column_name(item), quoted=True))

    # Windows

    def rewrite_windows(self, tree: exp.Query) -> exp.Query:
        """Replaces TUMBLE and HOP in FROM with a column ``window``. References to the columns window_start and
        window_end become references to fields of this column."""
        from sqlglot import exp

        for select in list(tree.find_all(exp.Select)):
            tables = [table for table in _from_tables(select) if isinstance(table.this, exp.Anonymous)]
            for table in tables:
                name = table.this.name.upper()
                if name not in ("TUMBLE", "HOP"):
                    self.refuse(f"{name} in FROM", None, table)
                self._window(select, table, name)
        return tree

    def _window(self, select: exp.Select, table: exp.Table, name: str) -> None:
        from sqlglot import exp

        arguments = table.this.expressions
        spans = [_interval_parts(argument) for argument in arguments[2:]]
        if len(arguments) != (3 if name == "TUMBLE" else 4) or None in spans:
            self.refuse(f"this {name}", f"write {name}(table, column, INTERVAL '10' MINUTE)", table)
        source, column = arguments[0], arguments[1]
        if not isinstance(source, (exp.Column, exp.Alias)) or not isinstance(column, exp.Column):
            self.refuse(f"{name} over anything but a table and a column", None, table)
        texts = [f"{span[0]} {span[1].lower()}s" for span in spans if span is not None]
        # HOP(t, c, slide, size) is window(c, size, slide).
        window = exp.Anonymous(
            this="window", expressions=[column.copy(), *(exp.Literal.string(text) for text in reversed(texts))]
        )
        inner = exp.select("*", exp.alias_(window, "window")).from_(
            exp.to_table(source.sql(dialect="spark"), dialect="spark")
        )
        alias = table.alias or source.name
        table.replace(inner.subquery(alias))
        self.time_column = column.name
        self._use_window(select)

    def _use_window(self, select: exp.Select) -> None:
        from sqlglot import exp

        group = select.args.get("group")
        if group is not None:
            kept: list[exp.Expr] = []
            is_grouped = False
            for key in group.expressions:
                if _is_window_bound(key, select):
                    is_grouped = True
                else:
                    kept.append(key)
            if is_grouped:
                # Groups by the struct instead of its fields, because only the struct carries the watermark to the state
                # store.
                group.set("expressions", [exp.column("window"), *kept])
        items: list[exp.Expr] = []
        for item in select.expressions:
            if isinstance(item, exp.Star):
                star = item.copy()
                star.set("except_", [*(star.args.get("except_") or []), exp.to_identifier("window")])
                items += [star, _window_field("start"), _window_field("end")]
            elif isinstance(item, exp.Column) and item.name in ("window_start", "window_end"):
                items.append(_window_field(item.name.removeprefix("window_")))
            else:
                items.append(item)
        select.set("expressions", items)
        for column in list(select.find_all(exp.Column)):
            if column.name in ("window_start", "window_end") and column.parent_select is select:
                column.replace(_window_field(column.name.removeprefix("window_")).this)

    # Allowed constructs

    def check(self, tree: exp.Expr) -> None:
        """Raises SqlError NOT_SUPPORTED for the first node that is not in :mod:`.lists`, or whose use would have
        another meaning in Spark."""
        from sqlglot import exp

        for node in tree.walk():
            kind = type(node).__name__
            if isinstance(node, exp.Anonymous):
                if node.name.lower() not in ANONYMOUS:
                    self.refuse(f"function {node.name.lower()}", None, node)
            elif isinstance(node, exp.DataType):
                self._check_type(node)
            elif kind not in CLAUSES and kind not in FUNCTIONS and kind not in AGGREGATES:
                self._check_function(node)
            else:
                self._check_use(node)

    def _check_type(self, node: exp.DataType) -> None:
        if node.this.name not in TYPES:
            self.refuse(f"type {node.sql(dialect='risingwave').lower()}", None, node)

    def _check_function(self, node: exp.Expr) -> None:
        from sqlglot import exp

        if isinstance(node, (exp.CurrentTimestamp, exp.CurrentDate)):
            self.refuse(
                "now() in a view",
                "filter by now() when you query the view; proctime() is the time when a row arrived",
                node,
            )
        known = EQUIVALENTS.get(type(node).__name__)
        if known is not None:
            self.refuse(known.name, advice(known.spark), node)
        what = f"function {self._function_name(node)}" if isinstance(node, exp.Func) else _spoken(type(node).__name__)
        self.refuse(what, None, node)

    def _function_name(self, node: exp.Func) -> str:
        """The name of a function as the query contains it. sqlglot replaces some names: ``sha256`` becomes the class
        ``SHA2Digest``."""
        start, end = node.meta.get("start"), node.meta.get("end")
        if isinstance(start, int) and isinstance(end, int):
            return self._query.text[start : end + 1].lower()
        return node.sql(dialect="risingwave").partition("(")[0].lower()

    def _check_use(self, node: exp.Expr) -> None:
        from sqlglot import exp

        match node:
            case exp.Distinct() if node.args.get("on") is not None:
                self.refuse("DISTINCT ON", f"write {ONE_ROW_PER_KEY}", node)
            case exp.Div() if not is_fraction(node.this) and not is_fraction(node.expression):
                self.refuse(
                    "/ between values that may be integers", "write a::DOUBLE PRECISION / b, or div(a, b)", node
                )
            case exp.Cast() if node.to.this.name in ("SMALLINT", "INT", "BIGINT") and not is_whole(node.this):
                self.refuse(
                    f"a cast to {node.to.sql(dialect='risingwave').lower()} of a value that may be a fraction",
                    "write floor(x) or round(x); PostgreSQL rounds where Spark cuts off",
                    node,
                )
            case exp.Interval() if _interval_parts(node) is None:
                self.refuse(
                    "this interval", "write days, hours, minutes or seconds, such as INTERVAL '10' MINUTE", node
                )
            case exp.Extract() if node.this.name.upper() not in EXTRACTED:
                field = node.this.name.lower()
                self.refuse(f"extract({field} ...)", advice(EPOCH) if field == "epoch" else None, node)
            case exp.TimestampTrunc() | exp.DateTrunc() if str(node.args["unit"].name).upper() not in TRUNCATED:
                self.refuse(f"date_trunc('{node.args['unit'].name.lower()}', ...)", None, node)
            case exp.TimestampTrunc() | exp.DateTrunc() if cast_type(node.this) not in ("TIMESTAMP", "TIMESTAMPTZ"):
                self.refuse(
                    "date_trunc of a value that may be of either timestamp type",
                    "write date_trunc('day', column::TIMESTAMP)",
                    node,
                )
            case exp.Substring() if not is_positive(node.args.get("start")):
                self.refuse("substring from a position that may be below 1", "write a number of 1 or more", node)
            case exp.Left() | exp.Right() if not is_positive(node.expression):
                self.refuse(f"{type(node).__name__.lower()} with a value that may be negative", None, node)
            case exp.Bracket() if len(node.expressions) != 1 or not is_index(node):
                self.refuse("an array's element by an index that may be below 1", "write a number of 1 or more", node)
            case exp.GroupConcat() | exp.ArrayAgg() if node.find(exp.Order) is not None:
                self.refuse("ORDER BY in an aggregate", advice(SORTED), node)
            case exp.Table() if node.args.get("version") is not None or node.args.get("when") is not None:
                self.refuse(
                    "FOR SYSTEM_TIME AS OF",
                    "omit FOR SYSTEM_TIME AS OF: a stream joins the newest state of the table",
                    node,
                )
            case exp.Join() if node.args.get("method") not in (None, "", "NATURAL"):
                self.refuse(f"{node.args['method']} JOIN", None, node)
            case exp.JSONExtract() if not isinstance(node.parent, (exp.JSONExtract, exp.JSONExtractScalar)):
                self.refuse("-> as a result", "write ->> to get its text", node)
            case exp.JSONExtract() | exp.JSONExtractScalar() if json_path(node) is None:
                self.refuse("-> with anything but a constant key", None, node)
            case exp.WindowSpec() if node.args.get("exclude") is not None:
                self.refuse("EXCLUDE in a window's frame", None, node)
            case exp.Unnest() | exp.Lateral():
                known = EQUIVALENTS[type(node).__name__]
                self.refuse(known.name, advice(known.spark), node)
            case exp.Values():
                self.refuse("VALUES", None, node)

    # Rewriting

    def rewrite(self, node: exp.Expr) -> exp.Expr:
        """Returns the node's equivalent in Spark."""
        from sqlglot import exp

        match node:
            case exp.DataType():
                return exp.DataType.build(TYPES[node.this.name], dialect="spark") if not node.expressions else node
            case exp.Anonymous() if node.name.lower() in ANONYMOUS:
                return exp.Anonymous(this=ANONYMOUS[node.name.lower()], expressions=node.expressions)
            case exp.Interval():
                number, one = _interval_parts(node) or (0, "SECOND")
                return exp.Interval(this=exp.Literal.string(str(number)), unit=exp.Var(this=one))
            case exp.Count() if node.this is None:
                # RisingWave's count() counts rows; Spark requires the star.
                return exp.Count(this=exp.Star(), big_int=node.args.get("big_int"))
            case exp.Concat():
                # PostgreSQL's concat skips nulls.
                return exp.Anonymous(this="concat_ws", expressions=[exp.Literal.string(""), *node.expressions])
            case exp.JSONExtractScalar():
                return exp.Anonymous(
                    this="get_json_object", expressions=[json_root(node), exp.Literal.string(json_path(node) or "$")]
                )
            case exp.Bracket():
                # sqlglot has made the index 0-based.
                index = int(node.expressions[0].name) + 1
                return exp.Anonymous(this="try_element_at", expressions=[node.this, exp.Literal.number(index)])
            case exp.TimestampTrunc() | exp.DateTrunc() if cast_type(node.this) == "TIMESTAMPNTZ":
                # Spark's date_trunc always returns a timestamp with a zone.
                unit = exp.Literal.string(node.args["unit"].name.upper())
                truncated = exp.Anonymous(this="date_trunc", expressions=[unit, node.this])
                return exp.Cast(this=truncated, to=exp.DataType.build("TIMESTAMP_NTZ", dialect="spark"))
            case _:
                return node


def _from_tables(select: exp.Select) -> list[exp.Table]:
    from sqlglot import exp

    found: list[exp.Table] = []
    source = select.args.get("from_") or select.args.get("from")
    if source is not None and isinstance(source.this, exp.Table):
        found.append(source.this)
    found += [join.this for join in select.args.get("joins") or [] if isinstance(join.this, exp.Table)]
    return found


def _is_window_bound(key: exp.Expr, select: exp.Select) -> bool:
    """True if a key of GROUP BY is window_start or window_end, by name or by position."""
    from sqlglot import exp

    if isinstance(key, exp.Literal) and key.is_int and 1 <= int(key.name) <= len(select.expressions):
        key = select.expressions[int(key.name) - 1].unalias()
    return isinstance(key, exp.Column) and key.name in ("window_start", "window_end")


def _window_field(name: str) -> exp.Alias:
    from sqlglot import exp

    field = exp.Dot(this=exp.column("window"), expression=exp.to_identifier(name))
    return exp.Alias(this=field, alias=exp.to_identifier(f"window_{name}"))


def _column_name(item: exp.Expr) -> str:
    """Returns the name that RisingWave gives to a column without an alias."""
    from sqlglot import exp

    if isinstance(item, exp.Cast):
        return _column_name(item.this)
    if isinstance(item, exp.Column):
        return item.name
    if isinstance(item, (exp.Filter, exp.Window)):
        return _column_name(item.this)
    if isinstance(item, exp.Anonymous):
        return item.name.lower()
    kind = type(item).__name__
    if kind in ALIASED_AS:
        return ALIASED_AS[kind]
    return item.sql_name().lower() if isinstance(item, exp.Func) else "?column?"


def _spoken(kind: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind).upper()
