"""Classifies a view's query, and rewrites it to the forms whose results the view's job can maintain.

If the view's job replaces rows, the view's table needs the columns that identify a row. The form adds each identifying
column that the query does not select as a hidden column, whose name begins with ``_rw_key_``. In the form, the column
KEEP replaces the condition of HAVING, and of a WHERE around an aggregation. The job needs KEEP in order to remove a row
from the table when the row no longer matches the condition of HAVING or of this WHERE. All queries here are in Spark's
SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from rw_sql.syntax.query.combined_groups import DecomposedAggregation
from rw_sql.syntax.query.key_columns import (
    bare,
    group_keys,
    inner,
    input_columns,
    is_column,
    leave_out,
    output_of,
    resolve_names,
    resolve_ordinals,
    spelling_of,
    stars_of,
    stored,
)
from rw_sql.syntax.query.signed_aggregates import (
    SIGN,
    count_distinct_by_sets,
    distinct_arguments,
    signable,
    signed,
)
from rw_sql.syntax.query.tables_read import shared_tree
from rw_sql.syntax.query.trees import (
    DISTINCT,
    GROUPS,
    JOIN,
    ONE_ROW,
    OTHER,
    QUERY_WITHIN,
    ROWS,
    STAR_WITHIN,
    aggregates_of,
    both,
    calls_of,
    copied,
    copy_of,
    equal_columns,
    expression,
    guarded,
    has_query,
    has_sessions,
    has_star_within,
    inlined,
    is_picking,
    is_plain,
    is_true,
    kind_of,
    only,
    read_by,
    spark_sql,
    spent_sql,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

KEY = "_rw_key_"
"""The prefix of hidden key columns; a number follows."""

Relations = Mapping[str, Sequence[str]]
"""Maps the name of each relation that a query reads to the relation's columns. These columns determine whether a name
in GROUP BY or HAVING refers to a column or to a select item."""

NO_RELATIONS: Relations = {}

KEEP = "_rw_keep"
"""The name of a column of the job's query that the table does not have. The column is true if the row belongs in the
view."""

ROW = "_rw_row"
"""The hidden key column of a view whose rows have no key. Its value consists of the row's digest and the row's index
among equal rows."""


class Form:
    """A form of the query, and the names of the form's columns that identify a row."""

    def __init__(self, tree: exp.Select, keys: tuple[str, ...]) -> None:
        """The form takes ownership of ``tree``: the caller must not use the tree afterwards."""
        self.keys = keys
        self._tree = tree

    @cached_property
    def text(self) -> str:
        """The form in Spark's SQL. The text is made when it is first read, because some callers need only the keys."""
        return spent_sql(self._tree)


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """A parsed query.

    The *core* is the query itself, or the innermost query inside selects that only choose columns and rows. ``kind``
    classifies the core. ``why`` is the reason for one of three restrictions: the kind is OTHER, the query may have no
    form because its expressions would see hidden columns, or the group of a row depends on other rows. The forms are
    derived from :attr:`text`. They are equivalent to the original query only if :attr:`text` is equivalent to it.
    """

    kind: str
    why: str
    _chain: tuple[exp.Select, ...] = ()

    @property
    def text(self) -> str:
        """The query as text, with its WITH queries inlined. The text is not computed in advance, because most queries
        are only classified."""
        return spark_sql(self._chain[0]) if self._chain else ""

    @property
    def is_direct(self) -> bool:
        """True if the core reads all rows and columns of a single relation by their names, and has no subquery."""
        from sqlglot import exp

        core = self._chain[-1] if self._chain else None
        if core is None or core.args.get("joins") or core.args.get("sample"):
            return False
        relation = read_by(core)
        return isinstance(relation, exp.Table) and is_plain(relation)

    @property
    def calls(self) -> frozenset[str]:
        """The lower-case names of the functions that are called in the select items of the core and of the selects
        around it."""
        return frozenset[str]().union(*map(calls_of, self._chain))

    def distinct_arguments(self) -> tuple[str, ...]:
        """The arguments of the aggregates with DISTINCT."""
        if self.kind not in (GROUPS, ONE_ROW):
            return ()
        return tuple(spark_sql(argument) for argument in distinct_arguments(self._chain[-1]))

    def upserted(self, types: Mapping[str, str], relations: Relations = NO_RELATIONS) -> Form | None:
        """The form, with the column KEEP, of an aggregation that a streaming query maintains as a stream of changed
        groups; None if the query has no such form. ``types`` are the Spark types of the expressions from
        :meth:`distinct_arguments`."""
        if self.kind not in (GROUPS, ONE_ROW):
            return None
        chain = copied(self._chain)
        return self._kept(chain, None, relations) if count_distinct_by_sets(chain[-1], types) else None

    def signed_arguments(self) -> tuple[str, ...] | None:
        """The arguments of count, sum and avg in an aggregation of a single relation; None if the query is not an
        aggregation of a single relation, or has other aggregates."""
        if self.kind not in (GROUPS, ONE_ROW) or not self.is_direct or has_star_within(self._chain[-1]):
            return None
        found = [signable(call) for call in aggregates_of(self._chain[-1])]
        if not found or None in found:
            return () if not found and self.kind == GROUPS else None
        return tuple(spark_sql(argument) for argument in found if argument is not None and argument.args)

    def probe(self, arguments: Sequence[str]) -> str:
        """A query that selects the given expressions from the core's input. Spark's analysis of this query gives the
        expressions' types."""
        from sqlglot import exp

        core = copy_of(self._chain[-1])
        listed = [exp.alias_(expression(text), f"a{number}") for number, text in enumerate(arguments)]
        return spent_sql(only(core, listed))

    def signed(self, types: Mapping[str, str], relations: Relations = NO_RELATIONS) -> Form | None:
        """The form of an aggregation that counts and sums the signed changes of its relation, with the column KEEP.

        ``types`` are the Spark types of the expressions from :meth:`signed_arguments`. The result is None if removed
        values cannot be subtracted exactly.
        """
        chain = copied(self._chain)
        core = chain[-1]
        if self.kind == GROUPS:
            resolve_ordinals(core)
        for call in aggregates_of(core):
            replacement = signed(call, types)
            if replacement is None:
                return None
            call.replace(replacement)
        lives = expression(f"COALESCE(SUM({SIGN}), 0) > 0") if self.kind == GROUPS else None
        return self._kept(chain, lives, relations)

    def _kept(self, chain: list[exp.Select], condition: exp.Expr | None, relations: Relations) -> Form | None:
        from sqlglot import exp

        core = chain[-1]
        columns = input_columns(core, relations)
        resolve_names(core, columns)
        keys = self._keys(core, columns)
        keep = both(condition, take(core, "having"))
        if keep is not None:
            spelled = spelling_of(core, columns)
            of_keys = {spelled(value) for key in keys for value in (key, stored(core, key))}
            for item in list(core.expressions):
                if spelled(inner(item)) not in of_keys:
                    item.replace(guarded(item, keep))
        names = _add_keys(core, keys, columns)
        if keep is not None:
            core.append("expressions", exp.alias_(is_true(keep), KEEP))
        return _formed(chain, names, has_keep=keep is not None)

    def _keys(self, core: exp.Select, columns: Iterable[str] | None) -> list[exp.Expr]:
        from sqlglot import exp

        return group_keys(core, columns) if self.kind == GROUPS else [exp.Literal.number(0)]

    def exposed(self, relations: Relations = NO_RELATIONS) -> Form | None:
        """The form of an aggregation in which all grouping keys are output columns; None for other queries."""
        if self.kind not in (GROUPS, ONE_ROW):
            return None
        chain = copied(self._chain)
        core = chain[-1]
        columns = input_columns(core, relations)
        names = _add_keys(core, self._keys(core, columns), columns)
        return _formed(chain, names, has_keep=None)

    def decomposed(self, columns: Sequence[str], *, is_signed: bool = False) -> DecomposedAggregation | None:
        """Decomposes an aggregation or DISTINCT of a single relation into columns that can be combined. Returns None
        for other queries. ``columns`` are the columns of the input. ``is_signed`` is True if the input consists of
        signed rows."""
        if len(self._chain) != 1 or not self.is_direct or self.kind not in (GROUPS, ONE_ROW, DISTINCT):
            return None
        core = copy_of(self._chain[0])
        names = [item.alias_or_name for item in core.expressions]
        if core.args.get("having") or any(item.is_star for item in core.expressions):
            return None
        if is_signed and has_star_within(core):
            return None
        if self.kind == DISTINCT:
            items = list(zip(core.expressions, names, strict=True))
            return DecomposedAggregation.of(core, names, items, is_signed=is_signed, has_rows=is_signed)
        # Only the start of a window is stored, so the key's column can replace only the start.
        keys = [stored(core, key) for key in self._keys(core, columns)]
        return DecomposedAggregation.of(
            core,
            names,
            list(zip(keys, _add_keys(core, keys, columns), strict=True)),
            is_signed=is_signed,
            has_rows=is_signed and self.kind == GROUPS,
        )

    def touched_groups(self, keys: Sequence[str], columns: Sequence[str]) -> str | None:
        """Returns a query that computes the group of each input row, in columns with the names ``keys``. Returns None
        if the query is not an aggregation with groups, or if the group of a row depends on other rows.

        ``columns`` are the columns of the input. ``keys`` are the keys of the form from :meth:`exposed`.
        """
        from sqlglot import exp

        if self.kind != GROUPS or not self.is_direct or has_sessions(self._chain[-1]):
            return None
        core = copy_of(self._chain[-1])
        groups = _columns_of(core, group_keys(core, columns), columns)
        listed = [exp.alias_(value, name) for (_, value), name in zip(groups, keys, strict=True)]
        return spent_sql(only(core, listed))

    def touched_rows(self) -> str | None:
        """Returns a query that computes, for each input row, the row of the result to which it contributes. Returns
        None if the query is not a DISTINCT over a single relation, or if that row also depends on other input rows."""
        if self.kind != DISTINCT or len(self._chain) != 1 or not self.is_direct or has_sessions(self._chain[0]):
            return None
        core = copy_of(self._chain[0])
        core.set("distinct", None)
        return spent_sql(core)

    def with_keys(self, keys: Sequence[str]) -> Form | None:
        """The form of a query that filters and projects one relation, including the relation's key columns; None for
        other queries."""
        from sqlglot import exp

        if self.kind != ROWS or not self.is_direct:
            return None
        chain = copied(self._chain)
        core = chain[-1]
        if _has_hidden(keys) and has_star_within(core):
            return None
        if ROW in keys:
            for star in stars_of(core):
                leave_out(star, ROW)  # ROW is added as a key with the prefix KEY, which marks hidden columns.
        names: list[str] = []
        for key in keys:
            found = output_of(core, key)
            names.append(found or _add_hidden(core, exp.column(key, quoted=True), len(names)))
        return _formed(chain, names, has_keep=None)

    def partitioned(self) -> tuple[Form, str, str] | None:
        """Returns three queries for a join of two relations. The first is the form that includes the join columns,
        which are the columns on which the relations are joined. The second selects the values of the join columns from
        both sides. The third selects the values in pairs, one from each side, for finding their types.

        Returns None for any other query, including a join of more than two relations and a join without join columns.
        """
        from sqlglot import exp

        if self.kind != JOIN:
            return None
        chain = copied(self._chain)
        core = chain[-1]
        joins = core.args["joins"]
        if len(joins) != 1 or core.args.get("sample") or any(item.is_star for item in core.expressions):
            return None
        (join,) = joins
        left, right = read_by(core), join.this
        if not all(isinstance(side, exp.Table) and is_plain(side) for side in (left, right)):
            return None
        names = [table.alias_or_name.lower() for table in (left, right)]
        side = (join.args.get("side") or "").upper()
        if names[0] == names[1] or join.args.get("kind") in ("SEMI", "ANTI", "CROSS") or join.args.get("method"):
            return None
        pairs = equal_columns(join, *names)
        if not pairs:
            return None
        partition: list[exp.Expr]
        match side:
            case "RIGHT":
                partition = [b.copy() for _, b in pairs]
            case "FULL":
                partition = [exp.func("COALESCE", a.copy(), b.copy()) for a, b in pairs]
            case _:
                partition = [a.copy() for a, _ in pairs]
        keys = [_add_hidden(core, column, number) for number, column in enumerate(partition)]
        form = _formed(chain, keys, has_keep=None)
        if form is None:
            return None
        touched = []
        for table, columns in ((left, [a for a, _ in pairs]), (right, [b for _, b in pairs])):
            listed = [exp.alias_(column.copy(), name) for column, name in zip(columns, keys, strict=True)]
            touched.append(spent_sql(exp.select(*listed).from_(table.copy())))
        paired = [column.copy() for pair in pairs for column in pair]
        each = [exp.alias_(column, f"a{number}") for number, column in enumerate(paired)]
        types = exp.select(*each).from_(left.copy()).join(right.copy(), join_type="cross")
        return form, " UNION ALL ".join(touched), spent_sql(types)


NOT_TAKEN_APART = ViewQuery(OTHER, "rw_sql cannot compute the changes of a query of this form")


@lru_cache(maxsize=64)
def read_view_query(text: str) -> ViewQuery:
    """Parses a query in Spark's SQL that Spark has accepted. The forms are built from copies of the parsed tree."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = shared_tree(text)
    except (SqlglotError, RecursionError):
        return NOT_TAKEN_APART
    if isinstance(tree, exp.SetOperation):
        return ViewQuery(OTHER, "it combines several queries")
    if not isinstance(tree, exp.Select):
        return NOT_TAKEN_APART
    chain = [copy_of(tree)]
    while True:
        if not inlined(chain[-1]):
            return ViewQuery(OTHER, "it has a WITH query that is not used exactly once, or is not a plain SELECT")
        below = read_by(chain[-1])
        if not (is_picking(chain[-1]) and isinstance(below, exp.Subquery) and is_plain(below)):
            break
        if not isinstance(below.this, exp.Select):
            break
        chain.append(below.this)
    for select in chain:
        _bare_items(select)
    if any(has_query(select) for select in chain):
        return ViewQuery(OTHER, QUERY_WITHIN, tuple(chain))
    kind, why = kind_of(chain[-1])
    if any(has_star_within(select) for select in (chain if kind == ROWS else chain[:-1])):
        why = why or STAR_WITHIN
    return ViewQuery(kind, why, tuple(chain))


def read_outermost(text: str) -> ViewQuery:
    """Reads only the outermost select of a query, and treats this select as the core. Use only the key columns of the
    result: its forms need not be valid forms of the view."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = shared_tree(text)
    except (SqlglotError, RecursionError):
        return NOT_TAKEN_APART
    if not isinstance(tree, exp.Select):
        return NOT_TAKEN_APART
    core = copy_of(tree)
    _bare_items(core)
    return ViewQuery(*kind_of(core, may_have_queries=True), (core,))


def _bare_items(select: exp.Select) -> None:
    """Removes the parentheses around select items, because sqlglot does not know the name of an item in parentheses."""
    select.set("expressions", [bare(item) for item in select.expressions])


def renamed_columns(text: str, names: Sequence[str], columns: Sequence[str]) -> str:
    """Returns a query with its output columns renamed."""
    listed = ", ".join(f"{_backquoted(name)} AS {_backquoted(new)}" for name, new in zip(names, columns, strict=True))
    return f"SELECT {listed} FROM ({text}) AS `_rw_query`"


def _backquoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Keys


def _add_keys(core: exp.Select, keys: Sequence[exp.Expr], columns: Iterable[str] | None) -> list[str]:
    """Adds the grouping keys that a select does not return as hidden columns. Returns, for each key, the name of the
    column that contains the key. For ``columns``, see :func:`group_keys`."""
    found = enumerate(_columns_of(core, keys, columns))
    return [name or _add_hidden(core, value, number) for number, (name, value) in found]


def _columns_of(
    core: exp.Select, keys: Sequence[exp.Expr], columns: Iterable[str] | None
) -> list[tuple[str, exp.Expr]]:
    """Returns a pair for each grouping key: a column name and an expression. If the value of a select item is the key
    or identifies it, the pair has the name and the expression of the first such item. Otherwise, the name is empty, and
    the expression is that of a hidden column for the key."""
    spelled = spelling_of(core, columns)
    # An item without a name is left out: Spark gives its column a name that is not known here.
    names = {spelled(inner(item)): item.alias_or_name for item in reversed(core.expressions) if item.alias_or_name}
    found = []
    for key in keys:
        values = (key, stored(core, key))
        value = next((value for value in values if spelled(value) in names), values[-1])
        found.append((names.get(spelled(value), ""), value))
    return found


def _add_hidden(select: exp.Select, key: exp.Expr, number: int) -> str:
    """Adds a key to a select as a hidden column, and returns the column's name."""
    from sqlglot import exp

    select.append("expressions", exp.alias_(key, f"{KEY}{number}"))
    return f"{KEY}{number}"


def _has_hidden(keys: Sequence[str]) -> bool:
    return any(key.startswith((KEY, ROW)) for key in keys)


def _formed(chain: Sequence[exp.Select], names: Sequence[str], *, has_keep: bool | None) -> Form | None:
    keys = _carry(chain, names, has_keep=has_keep)
    return None if keys is None else Form(chain[0], keys)


def _carry(chain: Sequence[exp.Select], names: Sequence[str], *, has_keep: bool | None) -> tuple[str, ...] | None:
    """Adds the keys and KEEP to the selects around a core, beginning with the innermost select. Returns the names that
    the keys have in the outermost select.

    If ``has_keep`` is None, conditions of the selects are left unchanged. Returns None if an expression such as
    ``struct(*)`` would contain a hidden column.
    """
    from sqlglot import exp

    carried = list(names)
    for select in reversed(chain[:-1]):
        if (has_keep or _has_hidden(carried)) and has_star_within(select):
            return None
        keep = None
        if has_keep is not None:
            keep = take(select, "where")
            below = exp.column(KEEP) if has_keep else None
            if keep is not None and below is not None:
                keep = expression(f"CASE WHEN {KEEP} THEN {spark_sql(is_true(keep))} ELSE FALSE END")
            keep = keep if keep is not None else below
        if keep is not None:
            for item in list(select.expressions):
                if not item.is_star and not is_column(item):
                    item.replace(guarded(item, keep))
        outer: list[str] = []
        for name in carried:
            # A hidden key keeps its number, which is its position among the keys.
            found = output_of(select, name)
            outer.append(found or _add_hidden(select, exp.column(name, quoted=True), len(outer)))
        if keep is not None:
            if has_keep:
                for star in stars_of(select):
                    leave_out(star, KEEP)
            select.append("expressions", exp.alias_(is_true(keep), KEEP))
            has_keep = True
        carried = outer
    return tuple(carried)
