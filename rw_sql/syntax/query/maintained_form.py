"""Classifies a view's query, and rewrites it to the forms that the view's job can maintain.

If the rows of a view are replaced, its table needs the columns that identify a row. If the query does not select an
identifying column, the form adds it as a hidden column, whose name begins with ``_rw_key_``. The conditions of HAVING,
and of a WHERE around an aggregation, become the column KEEP, because a row that no longer matches must be removed from
the table. All queries here are in Spark's SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from rw_sql.syntax.query.combined_groups import DecomposedAggregation
from rw_sql.syntax.query.signed_aggregates import SIGN, count_distinct_by_sets, signable, signed
from rw_sql.syntax.query.tables_read import shared_tree
from rw_sql.syntax.query.trees import (
    DISTINCT,
    GROUPS,
    JOIN,
    ONE_ROW,
    OTHER,
    QUERY_WITHIN,
    ROWS,
    aggregates_of,
    both,
    copied,
    copy_of,
    equal_columns,
    expression,
    guarded,
    has_query,
    inlined,
    is_picking,
    is_true,
    kind_of,
    only,
    read_by,
    spark_sql,
    spent_sql,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

KEY = "_rw_key_"
"""The prefix of hidden key columns; a number follows."""

KEEP = "_rw_keep"
"""A column of the job's query, but not of the table: true if the row belongs in the view."""

ROW = "_rw_row"
"""The hidden key of a view whose rows have no key: a digest of the row, and its index among equal rows."""


class Form:
    """A form of the query, and the columns in it that identify a row."""

    def __init__(self, tree: exp.Select, keys: tuple[str, ...]) -> None:
        """Takes over ``tree``, which the caller must not use afterwards."""
        self.keys = keys
        self._tree = tree

    @cached_property
    def text(self) -> str:
        """The form in Spark's SQL. It is made at the first use, because some callers need only the keys."""
        return spent_sql(self._tree)


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """A parsed query.

    The *core* is the query itself, or the innermost query inside selects that only choose columns and rows. ``kind``
    classifies the core; ``why`` is the reason if the kind is OTHER. The forms are derived from :attr:`text`, so they
    have the meaning of the original query only if :attr:`text` has it.
    """

    kind: str
    why: str
    _parsed: exp.Select | None = None
    _chain: tuple[exp.Select, ...] = ()

    @property
    def text(self) -> str:
        """The parsed query as text. It is computed at each call, because most queries are only classified."""
        return "" if self._parsed is None else spark_sql(self._parsed)

    @property
    def is_direct(self) -> bool:
        """True if the core reads a single relation and has no subquery."""
        from sqlglot import exp

        core = self._chain[-1] if self._chain else None
        return core is not None and not core.args.get("joins") and isinstance(read_by(core), exp.Table)

    def upserted(self) -> Form | None:
        """The form of an aggregation whose result is a stream of changed groups, with KEEP; None if there is no such
        form."""
        if self.kind not in (GROUPS, ONE_ROW):
            return None
        chain = copied(self._chain)
        return self._kept(chain, None) if count_distinct_by_sets(chain[-1]) else None

    def signed_arguments(self) -> tuple[str, ...] | None:
        """The arguments of count, sum and avg in an aggregation of a single relation; None if the query has other
        aggregates or is not such an aggregation."""
        if self.kind not in (GROUPS, ONE_ROW) or not self.is_direct:
            return None
        found = [signable(call) for call in aggregates_of(self._chain[-1])]
        if not found or None in found:
            return () if not found and self.kind == GROUPS else None
        return tuple(spark_sql(argument) for argument in found if argument is not None and argument.args)

    def probe(self, arguments: Sequence[str]) -> str:
        """A query that selects expressions from the core's input. Spark's analysis of the query shows the types of the
        expressions."""
        from sqlglot import exp

        core = copy_of(self._chain[-1])
        listed = [exp.alias_(expression(text), f"a{number}") for number, text in enumerate(arguments)]
        return spent_sql(only(core, listed))

    def signed(self, types: Mapping[str, str]) -> Form | None:
        """The form of an aggregation that counts and sums the signed changes of its relation, with KEEP.

        ``types`` are the Spark types of the expressions from :meth:`signed_arguments`. None if removed values cannot be
        subtracted exactly.
        """
        chain = copied(self._chain)
        core = chain[-1]
        if self.kind == GROUPS:
            _resolve_ordinals(core)
        for call in aggregates_of(core):
            replacement = signed(call, types)
            if replacement is None:
                return None
            call.replace(replacement)
        lives = expression(f"COALESCE(SUM({SIGN}), 0) > 0") if self.kind == GROUPS else None
        return self._kept(chain, lives)

    def _kept(self, chain: list[exp.Select], condition: exp.Expr | None) -> Form:
        from sqlglot import exp

        core = chain[-1]
        keys = _group_keys(core) if self.kind == GROUPS else [(exp.Literal.number(0), None)]
        keep = both(condition, take(core, "having"))
        named = [key for key, _ in keys]
        if keep is not None:
            for item in list(core.expressions):
                inner = item.this if isinstance(item, exp.Alias) else item
                if not any(inner == key for key in named):
                    item.replace(guarded(item, keep))
        names = _add_keys(core, keys)
        if keep is not None:
            core.append("expressions", exp.alias_(is_true(keep), KEEP))
        return _formed(chain, names, has_keep=keep is not None)

    def exposed(self) -> Form | None:
        """The form of an aggregation in which all grouping keys are output columns; None for other kinds of queries."""
        from sqlglot import exp

        if self.kind not in (GROUPS, ONE_ROW):
            return None
        chain = copied(self._chain)
        core = chain[-1]
        names = _add_keys(core, _group_keys(core) if self.kind == GROUPS else [(exp.Literal.number(0), None)])
        return _formed(chain, names, has_keep=None)

    def decomposed(self, columns: Sequence[str], *, is_signed: bool = False) -> DecomposedAggregation | None:
        """Decomposes an aggregation or DISTINCT of a single relation so that its groups can be combined; None for other
        queries. ``columns`` are the columns of the input. ``is_signed``: the input consists of signed rows."""
        from sqlglot import exp

        if len(self._chain) != 1 or not self.is_direct or self.kind not in (GROUPS, ONE_ROW, DISTINCT):
            return None
        core = copy_of(self._chain[0])
        names = [item.alias_or_name for item in core.expressions]
        if core.args.get("having") or _renames(core) or any(item.is_star for item in core.expressions):
            return None
        if self.kind == DISTINCT:
            items = list(zip(core.expressions, names, strict=True))
            return DecomposedAggregation.of(core, names, items, is_signed=is_signed, has_rows=is_signed)
        groups = [key for key, _ in _group_keys(core)] if self.kind == GROUPS else [exp.Literal.number(0)]
        # Only the start of a window is stored, so the key's column can replace only the start.
        keys = [_stored(_bare(_unaliased(core, key, columns))) for key in groups]
        return DecomposedAggregation.of(
            core,
            names,
            list(zip(keys, _add_keys(core, [(key, None) for key in keys]), strict=True)),
            is_signed=is_signed,
            has_rows=is_signed and self.kind == GROUPS,
        )

    def touched_groups(self, keys: Sequence[str], columns: Sequence[str]) -> str | None:
        """A query that returns the group of each input row, in columns whose names are ``keys``; None if the query is
        not an aggregation with groups.

        ``columns`` are the columns of the input.
        """
        from sqlglot import exp

        if self.kind != GROUPS or _renames(self._chain[-1]):
            return None
        core = copy_of(self._chain[-1])
        groups = [_unaliased(core, key, columns) for key, _ in _group_keys(core)]
        listed = [exp.alias_(_stored(key), name) for key, name in zip(groups, keys, strict=True)]
        return spent_sql(only(core, listed))

    def touched_rows(self) -> str | None:
        """A query that returns, for each input row, the result row to which it belongs; None if the query is not a
        DISTINCT over a single relation."""
        if self.kind != DISTINCT or len(self._chain) != 1 or not self.is_direct:
            return None
        core = copy_of(self._chain[0])
        core.set("distinct", None)
        return spent_sql(core)

    def with_keys(self, keys: Sequence[str]) -> Form | None:
        """The form of a query that filters and projects one relation, including the relation's key columns."""
        from sqlglot import exp

        if self.kind != ROWS or not self.is_direct:
            return None
        chain = copied(self._chain)
        core = chain[-1]
        relation = read_by(core).alias_or_name
        if any(isinstance(item, exp.Star) or item.is_star for item in core.expressions):
            if len(core.expressions) > 1 or any(_excepted(item) for item in core.expressions):
                return None
            names = list(keys)
        else:
            names = _add_keys(core, [(exp.column(key, quoted=True), relation) for key in keys])
        return _formed(chain, names, has_keep=None)

    def partitioned(self) -> tuple[Form, str] | None:
        """The form of a join of two relations that includes the columns on which they are joined, and a query that
        selects the values of these columns from both sides.

        None for any other query, including a join of more than two relations and a join without such columns.
        """
        from sqlglot import exp

        if self.kind != JOIN:
            return None
        chain = copied(self._chain)
        core = chain[-1]
        joins = core.args["joins"]
        if len(joins) != 1 or any(item.is_star for item in core.expressions):
            return None
        (join,) = joins
        left, right = read_by(core), join.this
        sides = {table.alias_or_name.lower(): table for table in (left, right) if isinstance(table, exp.Table)}
        side = (join.args.get("side") or "").upper()
        if len(sides) != 2 or join.args.get("kind") in ("SEMI", "ANTI", "CROSS") or join.args.get("method"):
            return None
        pairs = equal_columns(join, left.alias_or_name.lower(), right.alias_or_name.lower())
        if not pairs:
            return None
        partition: list[exp.Expr]
        match side:
            case "RIGHT":
                partition = [exp.column(b.name, table=b.table) for _, b in pairs]
            case "FULL":
                partition = [exp.func("COALESCE", a.copy(), b.copy()) for a, b in pairs]
            case _:
                partition = [a.copy() for a, _ in pairs]
        names = []
        for number, column in enumerate(partition):
            names.append(f"{KEY}{number}")
            core.append("expressions", exp.alias_(column, names[-1]))
        touched = []
        for table, columns in ((left, [a for a, _ in pairs]), (right, [b for _, b in pairs])):
            listed = [exp.alias_(column.copy(), name) for column, name in zip(columns, names, strict=True)]
            touched.append(spent_sql(exp.select(*listed).from_(table.copy())))
        return _formed(chain, names, has_keep=None), " UNION ALL ".join(touched)


NOT_TAKEN_APART = ViewQuery(OTHER, "its form is not supported for this")


@lru_cache(maxsize=64)
def read_view_query(text: str) -> ViewQuery:
    """Parses a query in Spark's SQL that Spark has accepted. The forms are built from copies of its tree."""
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
    parsed, tree = tree, copy_of(tree)
    if not inlined(tree):
        return ViewQuery(OTHER, "it has a WITH query that is not used exactly once, or is not a plain SELECT")
    chain = [tree]
    while is_picking(chain[-1]):
        below = read_by(chain[-1])
        if not isinstance(below, exp.Subquery) or not isinstance(below.this, exp.Select):
            break
        chain.append(below.this)
    if any(has_query(select) for select in chain):
        return ViewQuery(OTHER, QUERY_WITHIN, parsed, tuple(chain))
    kind, why = kind_of(chain[-1])
    return ViewQuery(kind, why, parsed, tuple(chain))


def renamed_columns(text: str, names: Sequence[str], columns: Sequence[str]) -> str:
    """A query with its columns renamed."""
    listed = ", ".join(f"{_backquoted(name)} AS {_backquoted(new)}" for name, new in zip(names, columns, strict=True))
    return f"SELECT {listed} FROM ({text}) AS `_rw_query`"


def _backquoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Keys


def _resolve_ordinals(core: exp.Select) -> None:
    """Replaces the ordinals in GROUP BY: ``1`` becomes the expression of the first select item."""
    from sqlglot import exp

    group = core.args["group"]
    keys = []
    for key in group.expressions:
        if isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal():
            item = core.expressions[int(key.name) - 1]
            keys.append((item.this if isinstance(item, exp.Alias) else item).copy())
        else:
            keys.append(key)
    group.set("expressions", keys)


def _unaliased(core: exp.Select, key: exp.Expr, columns: Sequence[str]) -> exp.Expr:
    """A group key in which the expressions of select items replace the items' names. As in Spark, a name that is also a
    column of the input means that column."""
    from sqlglot import exp

    known = {column.lower() for column in columns}
    items = {item.alias.lower(): item.this for item in reversed(core.expressions) if isinstance(item, exp.Alias)}

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table or node.name.lower() in known:
            return node
        item = items.get(node.name.lower())
        return node if item is None else exp.paren(item.copy())

    return key.copy().transform(replaced)


def _renames(core: exp.Select) -> bool:
    """True if the FROM clause renames the columns of its relation, or has a PIVOT, which replaces them."""
    relation = read_by(core)
    alias = relation.args.get("alias")
    return bool(relation.args.get("pivots") or (alias is not None and alias.args.get("columns")))


def _bare(key: exp.Expr) -> exp.Expr:
    """A key without the parentheses that enclose all of it."""
    from sqlglot import exp

    while isinstance(key, exp.Paren):
        key = key.this
    return key


def _group_keys(core: exp.Select) -> list[tuple[exp.Expr, str | None]]:
    _resolve_ordinals(core)
    return [(key.copy(), None) for key in core.args["group"].expressions]


def _add_keys(core: exp.Select, keys: Sequence[tuple[exp.Expr, str | None]]) -> list[str]:
    """Adds the keys that a select does not contain to it as hidden columns. Returns the names that all keys have as
    columns of the select.

    Each key is paired with its relation's name or with None. If there is a name, a select item also counts as the key
    if it is a column with the key's name that has no qualifier or that name as its qualifier.
    """
    from sqlglot import exp

    names: list[str] = []
    for key, relation in keys:
        for item in core.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if inner == key or (relation is not None and _is_column(inner, key, relation)):
                names.append(item.alias_or_name)
                break
        else:
            hidden = f"{KEY}{len(names)}"
            core.append("expressions", exp.alias_(_stored(key), hidden))
            names.append(hidden)
    return names


def _is_column(inner: exp.Expr, key: exp.Expr, relation: str) -> bool:
    from sqlglot import exp

    if not isinstance(inner, exp.Column) or inner.table.lower() not in ("", relation.lower()):
        return False
    return inner.name.lower() == key.name.lower()


def _stored(key: exp.Expr) -> exp.Expr:
    """A key as stored in the table.

    For a time window, the start is stored, because all windows have the same length.
    """
    from sqlglot import exp

    is_call = isinstance(key, exp.Anonymous) and key.name.lower() == "window"
    if is_call or (isinstance(key, exp.Column) and key.name.lower() == "window"):
        return exp.Dot(this=key.copy(), expression=exp.to_identifier("start"))
    return key.copy()


def _formed(chain: Sequence[exp.Select], names: Sequence[str], *, has_keep: bool | None) -> Form:
    keys = _carry(chain, names, has_keep=has_keep)
    return Form(chain[0], keys)


def _carry(chain: Sequence[exp.Select], names: Sequence[str], *, has_keep: bool | None) -> tuple[str, ...]:
    """Adds the keys and KEEP to the selects around a core, from the inside out; returns the final names of the keys.

    If ``has_keep`` is None, conditions of the selects are left unchanged.
    """
    from sqlglot import exp

    carried = list(names)
    for select in reversed(chain[:-1]):
        stars = [item for item in select.expressions if item.is_star]
        keep = None
        if has_keep is not None:
            keep = take(select, "where")
            inner = exp.column(KEEP) if has_keep else None
            if keep is not None and inner is not None:
                keep = expression(f"CASE WHEN {KEEP} THEN {spark_sql(is_true(keep))} ELSE FALSE END")
            keep = keep if keep is not None else inner
        if keep is not None:
            for item in list(select.expressions):
                if not item.is_star and not _is_plain(item):
                    item.replace(guarded(item, keep))
        outer: list[str] = []
        for name in carried:
            found = next((item for item in select.expressions if _is_plain(item) and _column_of(item) == name), None)
            if found is not None:
                outer.append(found.alias_or_name)
            elif stars:
                outer.append(name)
            else:
                hidden = name if name.startswith(KEY) else f"{KEY}{len(outer)}"
                select.append("expressions", exp.alias_(exp.column(name, quoted=True), hidden))
                outer.append(hidden)
        if keep is not None:
            if has_keep:
                for star in stars:
                    inner_star = star if isinstance(star, exp.Star) else star.this
                    inner_star.set("except_", [*(inner_star.args.get("except_") or []), exp.to_identifier(KEEP)])
            select.append("expressions", exp.alias_(is_true(keep), KEEP))
            has_keep = True
        carried = outer
    return tuple(carried)


def _is_plain(item: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(item.this if isinstance(item, exp.Alias) else item, exp.Column) and not item.is_star


def _column_of(item: exp.Expr) -> str:
    from sqlglot import exp

    return str((item.this if isinstance(item, exp.Alias) else item).name)


def _excepted(item: exp.Expr) -> bool:
    from sqlglot import exp

    star = item if isinstance(item, exp.Star) else item.this
    return bool(star.args.get("except_") or star.args.get("replace") or star.args.get("rename"))
