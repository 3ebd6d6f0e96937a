"""Operations on a query's tree that classify a select, remove clauses and combine parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    Tree = TypeVar("Tree", bound=exp.Expr)

ROWS, GROUPS, ONE_ROW, DISTINCT, JOIN, OTHER = "rows", "groups", "one row", "distinct", "join", "other"

QUERY_WITHIN = "it has a query within an expression"
"""The reason why a query with an inner query is recomputed completely: the inner query may read rows of groups or join
keys other than those of the changed rows."""

STAR_WITHIN = "it has a * within an expression"
"""The reason why a query is recomputed completely if the value of an expression depends on all columns of the input:
the input would have hidden columns, which would change the value."""

SESSIONS = "it groups by session windows, which a changed row may join or split"
"""The reason why a query with session windows is recomputed completely. The window to which a row belongs depends on
other rows, so the windows of changed rows cannot be computed from these rows alone."""

_UNORDERED = ("order", "limit", "offset", "sort", "cluster", "distribute", "qualify", "windows", "laterals", "pivots")
_GROUPINGS = ("rollup", "cube", "grouping_sets", "totals", "all")


def read_by(select: exp.Select) -> exp.Expr:
    from sqlglot import exp

    found = select.args.get("from_")
    return found.this if found is not None else exp.Null()


def inlined(tree: exp.Select) -> bool:
    """Inlines the WITH queries of a select, including nested WITH queries and the WITH queries of its subqueries.
    Returns False if any WITH query is recursive, is not a plain select, or is not used exactly once. A select that has
    no WITH queries is left unchanged."""
    from sqlglot import exp

    if tree.args.get("with_") is None:
        return True
    # Within a query with its own WITH, a name may have another meaning, so the innermost queries come first.
    return all(_inlined(clause) for clause in reversed(list(tree.find_all(exp.With))))


def _inlined(clause: exp.With) -> bool:
    """Inlines the queries of a WITH clause. Neither the clause nor the query to which it belongs may
    contain another WITH clause."""
    from sqlglot import exp

    tree = clause.parent
    if tree is None or clause.args.get("recursive"):
        return False
    tree.set("with_", None)
    # An earlier WITH query does not see the later WITH queries. The earlier query is not part of the tree yet when the
    # later queries are inlined.
    for part in reversed(clause.expressions):
        uses = [
            table for table in tree.find_all(exp.Table) if table.name.lower() == part.alias.lower() and not table.db
        ]
        if len(uses) != 1 or part.args["alias"].columns or not isinstance(part.this, exp.Select):
            return False
        (use,) = uses
        if not is_plain(use):
            return False
        use.replace(exp.Subquery(this=part.this, alias=exp.TableAlias(this=exp.to_identifier(use.alias or part.alias))))
    return True


def is_plain(relation: exp.Expr) -> bool:
    """True if an input in a FROM clause is only a relation or a query, with or without an alias. An input is not plain
    if it has a sample, a PIVOT, a join in parentheses, a version, or an alias with column names, because each of these
    changes the input's rows or columns."""
    alias = relation.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return False
    return {name for name, value in relation.args.items() if value} <= {"this", "db", "catalog", "alias"}


def is_picking(select: exp.Select) -> bool:
    """True if a select only chooses columns and rows of a single input."""
    from sqlglot import exp

    if any(select.args.get(name) for name in (*_UNORDERED, "sample", "joins", "group", "having", "distinct")):
        return False
    return not aggregates_of(select) and not any(True for _ in _own(select, exp.Window))


def kind_of(core: exp.Select, *, may_have_queries: bool = False) -> tuple[str, str]:
    """Returns the kind of a select. If the kind is OTHER, or if the select has session windows, also returns a reason.
    If ``may_have_queries`` is true and an expression of the select contains a query, the kind is determined as if the
    select did not contain this query."""
    from sqlglot import exp

    if any(_own(core, exp.Window)) or core.args.get("qualify") or core.args.get("windows"):
        return OTHER, "it numbers or compares rows by a window"
    if any(core.args.get(name) for name in ("limit", "offset")):
        return OTHER, "it has a LIMIT or an OFFSET"
    if any(core.args.get(name) for name in _UNORDERED):
        return OTHER, "it orders its rows or produces several rows from one"
    if has_query(core) and not may_have_queries:
        return OTHER, QUERY_WITHIN
    group, calls = core.args.get("group"), aggregates_of(core)
    why = SESSIONS if has_sessions(core) else ""
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    if group is not None and any(isinstance(key, several) for key in group.expressions):
        return OTHER, "it aggregates at several levels"
    if group is not None or calls or core.args.get("having"):
        if core.args.get("distinct") or (group is not None and any(group.args.get(name) for name in _GROUPINGS)):
            return OTHER, "it aggregates at several levels"
        return (GROUPS, why) if group is not None and group.expressions else (ONE_ROW, "")
    if core.args.get("distinct"):
        return (DISTINCT, why) if core.args["distinct"].args.get("on") is None else (OTHER, "it is a DISTINCT ON")
    return (JOIN, "") if core.args.get("joins") else (ROWS, "")


def has_sessions(select: exp.Select) -> bool:
    """True if a select may group by session windows. The result is also True if the select makes a session window
    anywhere outside its aggregates, even without grouping by it."""
    from sqlglot import exp

    group = select.args.get("group")
    for part in [*select.expressions, *([] if group is None else [group])]:
        for call in part.find_all(exp.Anonymous):
            if call.name.lower() == "session_window" and call.find_ancestor(exp.AggFunc, exp.Select) is select:
                return True
    return False


def calls_of(select: exp.Select) -> frozenset[str]:
    """The lower-case names of the functions that are called in a select's items."""
    from sqlglot import exp

    calls = (call for item in select.expressions for call in item.find_all(exp.Func) if _select_of(call) is select)
    return frozenset((call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower() for call in calls)


def has_query(select: exp.Select) -> bool:
    """True if an expression of a select, or the condition of one of its joins, contains a query."""
    from sqlglot import exp

    return any(True for part in _parts(select) for _ in part.find_all(exp.Query))


def has_star_within(select: exp.Select) -> bool:
    """True if an expression of a select contains a ``*`` for the columns of the input, as in ``struct(*)``.

    The value of such an expression depends on all columns of the input, including hidden columns. The value of
    ``count(*)`` does not depend on the columns, but ``count(* EXCEPT (a))`` counts the rows without NULL in the other
    columns.
    """
    from sqlglot import exp

    for star in (star for part in _parts(select) for star in part.find_all(exp.Star)):
        whole = star.parent if isinstance(star.parent, exp.Column) else star
        if whole.parent is not select and not counts_rows(star.parent):
            return True
    return False


def counts_rows(call: exp.Expr | None) -> bool:
    """True for ``count(*)``."""
    from sqlglot import exp

    if not isinstance(call, exp.Count) or not isinstance(call.this, exp.Star) or call.expressions:
        return False
    return not any(call.this.args.values())


def _parts(select: exp.Select) -> list[exp.Expr]:
    """The expressions of a select, without its inputs."""
    found = [*select.expressions]
    found += [select.args[name] for name in ("where", "having", "group") if select.args.get(name)]
    found += [join.args["on"] for join in select.args.get("joins") or () if join.args.get("on")]
    return found


def _own(select: exp.Select, kind: type[exp.Expr]) -> list[exp.Expr]:
    return [node for part in _parts(select) for node in part.find_all(kind) if _select_of(node) is select]


def _select_of(node: exp.Expr) -> exp.Select | None:
    from sqlglot import exp

    return node.find_ancestor(exp.Select)


def aggregates_of(select: exp.Select) -> list[exp.Expr]:
    """The aggregates of a select, each with its FILTER. Aggregates inside subqueries are not included."""
    from sqlglot import exp

    found = []
    for call in _own(select, exp.AggFunc):
        if isinstance(call.parent, exp.Window) or call.find_ancestor(exp.AggFunc) is not None:
            continue
        around = call.parent
        found.append(around if isinstance(around, exp.Filter) else call)
    return found


def take(select: exp.Select, name: str) -> exp.Expr | None:
    """Removes a clause from the select and returns its condition."""
    clause = select.args.get(name)
    if clause is None:
        return None
    select.set(name, None)
    condition: exp.Expr = clause.this
    return condition


def both(first: exp.Expr | None, second: exp.Expr | None) -> exp.Expr | None:
    from sqlglot import exp

    if first is None or second is None:
        return first if second is None else second
    return exp.And(this=exp.paren(first), expression=exp.paren(second))


def is_true(condition: exp.Expr) -> exp.Expr:
    """Returns an expression that is true if a condition is true, and false if the condition is false or NULL."""
    from sqlglot import exp

    return exp.func("COALESCE", condition.copy(), exp.false())


def guarded(item: exp.Expr, keep: exp.Expr) -> exp.Expr:
    """Returns a select item that is computed only for rows that match the condition.

    For other rows, the computation might fail, for example if the condition protects a division from a divisor of 0.
    """
    from sqlglot import exp

    inner = item.this if isinstance(item, exp.Alias) else item
    guarded = exp.Case(ifs=[exp.If(this=keep.copy(), true=inner.copy())])
    return exp.alias_(guarded, item.args["alias"].copy() if isinstance(item, exp.Alias) else item.alias_or_name)


def expression(text: str) -> exp.Expr:
    from sqlglot import parse_one

    return parse_one(text, read="spark")


def only(core: exp.Select, listed: list[exp.Expr]) -> exp.Select:
    """Returns a select that computes the given expressions for each row of the core's input."""
    core.set("expressions", listed)
    for name in ("group", "having", "distinct"):
        core.set(name, None)
    return core


def spark_sql(tree: exp.Expr) -> str:
    return tree.sql(dialect="spark", normalize_functions=False)


def spent_sql(tree: exp.Expr) -> str:
    """Returns the text that :func:`spark_sql` returns, for a tree that the caller no longer uses. sqlglot modifies the
    tree itself instead of a copy, which saves time."""
    return tree.sql(dialect="spark", normalize_functions=False, copy=False)


def copy_of(tree: Tree) -> Tree:
    """Returns a copy of a tree. This function takes a third of the time of the tree's ``copy()`` method."""
    from sqlglot import exp

    root = tree.__class__()
    left: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while left:
        node, made = left.pop()
        made._type = node._type
        made.comments = None if node.comments is None else list(node.comments)
        made._meta = None if node._meta is None else dict(node._meta)
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                child = made.args[key] = value.__class__()
                child.parent, child.arg_key = made, key
                left.append((value, child))
            elif type(value) is list:
                listed = made.args[key] = []
                for index, part in enumerate(value):
                    if isinstance(part, exp.Expr):
                        child = part.__class__()
                        child.parent, child.arg_key, child.index = made, key, index
                        left.append((part, child))
                        listed.append(child)
                    else:
                        listed.append(part)
            else:
                made.args[key] = value
    return root


def copied(chain: Sequence[exp.Select]) -> list[exp.Select]:
    """A copy of a chain of nested selects."""
    copied = [copy_of(chain[0])]
    while len(copied) < len(chain):
        copied.append(read_by(copied[-1]).this)
    return copied


def equal_columns(join: exp.Join, left: str, right: str) -> list[tuple[exp.Column, exp.Column]]:
    """The pairs of columns on which a join is an equality join. The first column of each pair belongs to the left side,
    the second to the right side."""
    from sqlglot import exp

    condition = join.args.get("on")
    if condition is None:
        return []
    found = []
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        if not isinstance(part, exp.EQ):
            continue
        a, b = part.this, part.expression
        # With more than one qualifier, a column may be a field of a struct.
        if not isinstance(a, exp.Column) or not isinstance(b, exp.Column) or a.db or b.db:
            continue
        if (a.table.lower(), b.table.lower()) == (right, left):
            a, b = b, a
        if (a.table.lower(), b.table.lower()) == (left, right):
            found.append((a, b))
    return found
