"""Rewrites an aggregation to a form in which the groups of a batch can be combined with the groups of earlier batches.

Each input row is *lifted* to a group of its own: ``count(*)`` becomes 1, ``sum(x)`` and ``max(x)`` become ``x``. The
result of the aggregation is the combination of all these groups, and two groups with the same key are combined column
by column, in any order: counts and sums are added, the smaller of two minima is taken, and the larger of two maxima is
taken. (These are the functions *lift* and *combine* of K. Tangwongsan et al., "General Incremental Sliding-Window
Aggregation", PVLDB 8, 2015.)

A column such as ``round(avg(x), 1)`` cannot be combined. Such a column is *derived*: hidden columns contain the sum and
the count, and an expression computes the column from these two.

The input may also consist of *signed* rows: the rows that a commit adds to a table have the sign 1, and the rows that a
commit removes have the sign -1. A removed row is lifted to a group with negative counts and sums. Minima and maxima of
signed rows cannot be combined. For signed rows, each sum needs a hidden count of its values, because a sum without
values is NULL. The number of each group's rows is needed too, because the group disappears when its last row is
removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.query.key_columns import part_spellings_of
from rw_sql.syntax.query.signed_aggregates import EXACT_WHOLE, SIGN
from rw_sql.syntax.query.trees import aggregates_of, copy_of, spark_sql, spent_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

KEY, COUNT, SUM, MIN, MAX, DERIVED, ROWS = "key", "count", "sum", "min", "max", "derived", "rows"
"""The ways in which a column of two groups is combined. With KEY, the two groups have equal values in the column. SUM,
MIN and MAX are the functions of these names. COUNT adds the two values, as SUM does, but a count without any values is
0, whereas a sum without any values is NULL. DERIVED means that the column is computed from the other columns. ROWS adds
the groups' numbers of rows, and a group with 0 rows is removed."""

FUNCTIONS = {COUNT: SUM, SUM: SUM, MIN: MIN, MAX: MAX, ROWS: SUM}
"""Maps the way in which a column is combined to the aggregate function that combines the column's values."""

PART = "_rw_part_"
"""The prefix of hidden columns from which derived columns are computed; a number follows."""

GROUPS_RELATION = "_rw_groups"
"""The name of the relation that the query for the derived columns reads. The relation contains the groups without their
derived columns."""

_KEY_TYPES = ("BIGINT", "INT", "SMALLINT", "TINYINT", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_BOUND_TYPES = (*_KEY_TYPES, "FLOAT", "DOUBLE")
_SUM_TYPES = ("BIGINT", "DOUBLE")
_TYPES = {
    **dict.fromkeys((COUNT, ROWS), ("BIGINT",)),
    **dict.fromkeys((MIN, MAX), _BOUND_TYPES),
    KEY: _KEY_TYPES,
    SUM: _SUM_TYPES,
}
"""The types, besides DECIMAL, whose values Arrow combines with the same result as Spark, by the way of combining. FLOAT
and DOUBLE cannot be keys, because Arrow groups NaN, 0.0 and -0.0 differently from Spark. Minima and maxima are combined
with Arrow only if none of the values is NaN. A signed sum cannot be DOUBLE, because subtracting a removed value would
not give exactly the sum of the remaining values."""

_TYPED = "_rw_typed_"
"""The prefix of columns that exist only to show an aggregate's type; a number follows."""


@dataclass(slots=True)
class DecomposedAggregation:
    """An aggregation or DISTINCT, decomposed into columns that can be combined and columns that are derived from these.

    ``columns`` are the names of the query's own columns, and ``keys`` are the names of the columns that identify a
    group. ``is_signed`` is True if the input consists of signed rows.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    is_signed: bool
    _parts: exp.Select
    """The aggregation with one column for each key and aggregate. The hidden columns are at the end."""
    _derived: dict[str, exp.Expr]
    _typed: list[tuple[exp.Expr, str]] = field(default_factory=list)
    """The aggregates that this module computes in a different way from Spark, each with the type for which both ways
    give the same result."""
    _rows: str | None = None
    """The hidden column that contains the number of rows of each group."""

    @staticmethod
    def of(
        core: exp.Select,
        columns: Sequence[str],
        keys: Sequence[tuple[exp.Expr, str]],
        *,
        is_signed: bool = False,
        has_rows: bool = False,
    ) -> DecomposedAggregation | None:
        """Decomposes a query of a single relation. The call modifies the query's tree ``core``. ``columns`` are the
        names of the query's own columns, and ``keys`` are the grouping expressions with the names of their columns. The
        caller has added hidden keys to the select items. If ``has_rows`` is True, the result also has a column with the
        number of a group's rows. Returns None if the query cannot be decomposed."""
        from sqlglot import exp

        names = [item.alias_or_name for item in core.expressions]
        of_key = {name for _, name in keys}
        if not all(names) or len({*names}) < len(names):
            return None
        parts = DecomposedAggregation(
            columns=tuple(columns),
            keys=tuple(dict.fromkeys(name for _, name in keys)),
            is_signed=is_signed,
            _parts=core,
            _derived={},
        )
        calls = {id(call) for call in aggregates_of(core)}
        kept: list[exp.Expr] = []
        hidden: list[exp.Expr] = []
        spelled = part_spellings_of(core)
        of_keys = {spelled(key)[id(key)]: name for key, name in reversed(keys) if not isinstance(key, exp.Literal)}
        for item, name in zip(core.expressions, names, strict=True):
            if name in of_key or (id(_inner(item)) in calls and parts._is_combined(_inner(item))):
                kept.append(item)
                continue
            whole = exp.paren(_inner(item))
            derived = parts._over_parts(whole, spelled(whole), of_keys, hidden)
            if derived is None:
                return None
            parts._derived[name] = derived
        if has_rows:
            parts._rows = _added(_count_of(_star()), hidden)
        core.set("expressions", [*kept, *hidden])
        return parts

    @property
    def is_whole(self) -> bool:
        """True if the view's table needs only the query's own columns, without hidden or derived columns."""
        return not self._derived and self.names == self.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are combined."""
        return tuple(item.alias_or_name for item in self._parts.expressions)

    @property
    def typed_text(self) -> str:
        """Returns the text of a query for finding the types that :meth:`lifted` needs. The query returns the columns
        that are combined, and the columns that only show an aggregate's type."""
        from sqlglot import exp

        core = copy_of(self._parts)
        for number, (call, _) in enumerate(self._typed):
            core.append("expressions", exp.alias_(call.copy(), f"{_TYPED}{number}"))
        if self._rows is not None and core.args.get("distinct"):
            # DISTINCT cannot count the rows, so GROUP BY replaces DISTINCT. The keys are the first columns.
            core.set("distinct", None)
            ordinals = [exp.Literal.number(number + 1) for number in range(len(self.keys))]
            core.set("group", exp.Group(expressions=ordinals))
        return spent_sql(core)

    def lifted(self, types: Mapping[str, str]) -> Lifted | None:
        """The lifted form of the query. ``types`` are the types, as DDL, of the columns of :attr:`typed_text`. The
        result is None if values of these types cannot be combined."""
        from sqlglot import exp

        if any(types.get(f"{_TYPED}{number}") != kind for number, (_, kind) in enumerate(self._typed)):
            return None
        core, functions = copy_of(self._parts), {}
        items: list[exp.Expr] = []
        for item in core.expressions:
            name, kind = item.alias_or_name, types.get(item.alias_or_name, "")
            aggregate = None if name in self.keys else _inner(item)
            functions[name] = KEY
            if aggregate is not None:
                functions[name] = ROWS if name == self._rows else _function_of(aggregate) or KEY
            if not _has_type(kind, _TYPES[functions[name]]) or (self.is_signed and kind == "DOUBLE"):
                return None
            if aggregate is None:
                items.append(item)
                continue
            value = _lifted(aggregate, kind if self.is_signed else None)
            if functions[name] != KEY:
                value = exp.cast(value, kind, dialect="spark")
            items.append(exp.alias_(value, name, quoted=True))
        core.set("expressions", items)
        core.set("group", None)
        core.set("distinct", None)
        return Lifted(
            text=spent_sql(core),
            functions={**dict.fromkeys(self.columns, DERIVED), **functions},
            derived=self._derived_text(),
        )

    def _derived_text(self) -> str:
        if not self._derived:
            return ""
        hidden = [name for name in self.names if name not in self.columns]
        listed = [
            f"{spark_sql(self._of_group(self._derived[name]))} AS {quoted_for_spark(name)}"
            if name in self._derived
            else quoted_for_spark(name)
            for name in (*self.columns, *hidden)
        ]
        return f"SELECT {', '.join(listed)} FROM {GROUPS_RELATION}"

    def _of_group(self, derived: exp.Expr) -> exp.Expr:
        """A derived column. For a group with 0 rows, which is about to be removed, the column is NULL, because the
        column's expression might fail: for example, it might divide by the number of rows."""
        from sqlglot import exp

        return derived if self._rows is None else _if_positive(exp.column(self._rows, quoted=True), derived)

    def _over_parts(
        self,
        item: exp.Expr,
        spellings: Mapping[int, exp.Expr],
        of_keys: Mapping[exp.Expr, str],
        hidden: list[exp.Expr],
    ) -> exp.Expr | None:
        """Replaces the keys and aggregates in a copy of a select item by their columns, and adds the aggregates to
        ``hidden``. Returns the modified copy; None if the item also needs columns that are neither keys nor aggregates.
        ``spellings`` are the spellings of the item's parts, and ``of_keys`` maps the spellings of the keys to their
        columns."""
        from sqlglot import exp

        unknown = False

        def replaced(node: exp.Expr) -> exp.Expr:
            nonlocal unknown
            if (name := of_keys.get(spellings[id(node)])) is not None:
                return exp.column(name, quoted=True)
            call = node.this if isinstance(node, exp.Filter) else node
            if isinstance(call, exp.Avg) and not isinstance(call.this, exp.Distinct):
                return self._average(node, hidden)
            if self.is_signed and isinstance(call, exp.Sum) and _function_of(node) is not None:
                return self._sum_of_values(node, hidden)
            if isinstance(call, exp.AggFunc):
                unknown = unknown or not self._is_combined(node)
                return exp.column(_added(node, hidden), quoted=True)
            unknown = unknown or isinstance(node, exp.Column | exp.Window)
            return node

        found = item.transform(replaced, copy=False)
        return None if unknown else found

    def _is_combined(self, found: exp.Expr) -> bool:
        """True if an aggregate's values can be combined without hidden columns."""
        function = _function_of(found)
        return function == COUNT if self.is_signed else function is not None

    def _average(self, found: exp.Expr, hidden: list[exp.Expr]) -> exp.Expr:
        """An average, computed from a sum and a count. Spark itself computes averages in this way, except averages of
        decimals."""
        from sqlglot import exp

        self._typed.append((found, "DOUBLE"))
        value = (found.this if isinstance(found, exp.Filter) else found).this
        if self.is_signed:
            # Signed values are added exactly, because removed values are subtracted.
            self._typed.append((exp.Sum(this=value.copy()), "BIGINT"))
        # Spark adds the values as DOUBLE, which has no overflow.
        summed = exp.Sum(this=exp.cast(value.copy(), EXACT_WHOLE if self.is_signed else "DOUBLE", dialect="spark"))
        total, count = (
            exp.column(_added(_in_place(found, part), hidden), quoted=True) for part in (summed, _count_of(value))
        )
        ratio = exp.Div(
            this=exp.cast(total, "DOUBLE", dialect="spark") if self.is_signed else total,
            expression=exp.cast(count.copy(), "DOUBLE", dialect="spark"),
        )
        return _if_positive(count, ratio)

    def _sum_of_values(self, found: exp.Expr, hidden: list[exp.Expr]) -> exp.Expr:
        """A sum of signed values. The sum is NULL if there are no values."""
        from sqlglot import exp

        call = found.this if isinstance(found, exp.Filter) else found
        count = exp.column(_added(_in_place(found, _count_of(call.this)), hidden), quoted=True)
        return _if_positive(count, exp.column(_added(found, hidden), quoted=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """A query that returns one group for each input row.

    ``functions`` maps each column of the view's table to the way in which its values are combined. ``derived`` is the
    query, over GROUPS_RELATION, that returns groups with their derived columns; empty if there are no derived columns.
    """

    text: str
    functions: Mapping[str, str]
    derived: str


def _inner(item: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    inner: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return inner


def _in_place(found: exp.Expr, call: exp.Expr) -> exp.Expr:
    """The aggregate ``call``, with the FILTER of the aggregate ``found``, if any."""
    from sqlglot import exp

    return exp.Filter(this=call, expression=found.expression.copy()) if isinstance(found, exp.Filter) else call


def _count_of(value: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Count(this=value.copy(), big_int=True)  # like a parsed count, so that the two compare as equal


def _star() -> exp.Expr:
    from sqlglot import exp

    return exp.Star()


def _if_positive(count: exp.Expr, value: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    has_values = exp.GT(this=count.copy(), expression=exp.Literal.number(0))
    return exp.paren(exp.Case(ifs=[exp.If(this=has_values, true=value)]))


def _added(call: exp.Expr, hidden: list[exp.Expr]) -> str:
    """Returns the name of the hidden column that contains the aggregate ``call``. If ``hidden`` lacks this column, adds
    it."""
    from sqlglot import exp

    for item in hidden:
        if _inner(item) == call:
            return str(item.alias)
    name = f"{PART}{len(hidden)}"
    hidden.append(exp.alias_(call.copy(), name))
    return name


def _function_of(found: exp.Expr) -> str | None:
    """The function that combines the values of an aggregate; None if these values cannot be combined."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    if isinstance(call.this, exp.Distinct) or (isinstance(call.this, exp.Star) and any(call.this.args.values())):
        return None
    match call:
        case exp.Count() | exp.CountIf():
            return COUNT
        case exp.Sum() | exp.Min() | exp.Max() if not call.expressions:
            return {exp.Sum: SUM, exp.Min: MIN, exp.Max: MAX}[type(call)]
        case _:
            return None


def _lifted(found: exp.Expr, signed_as: str | None) -> exp.Expr:
    """The value of an aggregate for a single row. ``signed_as`` is the aggregate's type if the row is signed, otherwise
    None."""
    from sqlglot import exp

    call = found.this if isinstance(found, exp.Filter) else found
    conditions = [found.expression.this] if isinstance(found, exp.Filter) else []
    if isinstance(call, exp.CountIf):
        conditions.append(call.this)
    elif isinstance(call, exp.Count) and not isinstance(call.this, exp.Star):
        conditions += [_is_not_null(part) for part in (call.this, *call.expressions)]
    is_count = isinstance(call, exp.Count | exp.CountIf)
    value: exp.Expr = exp.Literal.number(1) if is_count else call.this.copy()
    if signed_as is not None:
        value = _with_sign(value, signed_as)
    if not conditions:
        return value
    condition = exp.and_(*(exp.paren(part.copy()) for part in conditions))
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=exp.Literal.number(0) if is_count else None)


def _with_sign(value: exp.Expr, kind: str) -> exp.Expr:
    """The value for an added row; the negated value for a removed row. The cast precedes the negation, because the
    least value of a smaller type cannot be negated in that type."""
    from sqlglot import exp

    given = exp.cast(value, kind, dialect="spark")
    is_added = exp.GT(this=exp.column(SIGN), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=is_added, true=given)], default=exp.Neg(this=given.copy()))


def _is_not_null(part: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Not(this=exp.Is(this=exp.paren(part.copy()), expression=exp.Null()))


def _has_type(kind: str, names: Sequence[str]) -> bool:
    return kind in names or kind.startswith("DECIMAL")
