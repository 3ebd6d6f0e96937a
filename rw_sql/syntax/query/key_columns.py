"""Finds the keys of a select: its grouping expressions, and those select items that are columns of its input."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rw_sql.syntax.query.trees import read_by

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlglot import exp

_WINDOW = "window"
"""Spark's function for time windows, and the name of the column that it makes."""


def resolve_ordinals(core: exp.Select) -> None:
    """Replaces the ordinals in GROUP BY: ``1`` becomes the expression of the first select item.

    An ordinal that has no select item is kept, and the analysis of the query reports it. An ordinal whose select item
    is a number is also kept, because Spark would interpret that number as an ordinal.
    """

    group = core.args["group"]
    resolved = [(key, _of_ordinal(core, key)) for key in group.expressions]
    group.set("expressions", [key if _is_ordinal(found) else found.copy() for key, found in resolved])


def _of_ordinal(core: exp.Select, key: exp.Expr) -> exp.Expr:
    """The expression of the select item to which a key refers by its ordinal; any other key is returned without the
    parentheses that enclose it."""
    items, key = core.expressions, bare(key)
    return inner(items[int(key.name) - 1]) if _is_ordinal(key) and 1 <= int(key.name) <= len(items) else key


def _is_ordinal(key: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal()


def group_keys(core: exp.Select, columns: Iterable[str] | None) -> list[exp.Expr]:
    """Copies of the expressions by which a select groups, with each name of a select item replaced by the item's
    expression. Each expression occurs only once in the result, even if the select spells it in several ways.

    ``columns`` are the names that columns of the input may have. If ``columns`` is None, these names are unknown, and
    the names of select items are left unchanged.
    """
    resolve_ordinals(core)
    keys = [bare(_of_ordinal(core, key)) for key in core.args["group"].expressions]
    if columns is not None:
        known = {column.lower() for column in columns}
        keys = [_key(core, key, known) for key in keys]
    spelled = spelling_of(core, columns)
    found: dict[exp.Expr, exp.Expr] = {}
    for key in keys:
        found.setdefault(spelled(key), key)
    return [key.copy() for key in found.values()]


def resolve_names(core: exp.Select, columns: Iterable[str] | None) -> None:
    """Replaces names of select items in GROUP BY and HAVING by the items' expressions. ``columns`` has the meaning
    described in :func:`group_keys`."""
    from sqlglot import exp

    if columns is None:
        return
    known = {column.lower() for column in columns}
    group, having = core.args.get("group"), core.args.get("having")
    keys: list[exp.Expr] = []
    if group is not None and group.expressions:
        resolve_ordinals(core)
        resolved = [(key, _key(core, key, known)) for key in group.expressions]
        keys = [found for _, found in resolved]
        group.set("expressions", [key if _is_ordinal(found) else found.copy() for key, found in resolved])
    if having is not None:
        # A column that is neither a key nor in an aggregate has no value in HAVING, so its name means a select item.
        # Within a function that sqlglot does not know, it may be in an aggregate. Spark first looks for whole keys and
        # whole items, whose parts have no meaning of their own.
        of_keys = {key.name.lower() for key in keys if isinstance(key, exp.Column) and not _is_field(core, key)}
        items = [item.this for item in core.expressions if isinstance(item, exp.Alias)]
        wholes = {*map(spelling_of(core, known), (*keys, *items))}

        def is_column(node: exp.Column, name: str) -> bool:
            if name in of_keys or name not in known:
                return name in of_keys
            return node.find_ancestor(exp.AggFunc, exp.Anonymous, exp.Filter, exp.WithinGroup) is not None

        having.set("this", _without_names(core, having.this, is_column, known, wholes=wholes))


def _key(core: exp.Select, key: exp.Expr, known: Collection[str]) -> exp.Expr:
    return bare(_without_names(core, key, lambda _, name: name in known, known))


def _without_names(
    core: exp.Select,
    given: exp.Expr,
    is_column: Callable[[exp.Column, str], bool],
    known: Collection[str],
    limit: int | None = None,
    wholes: Collection[exp.Expr] = (),
) -> exp.Expr:
    """A copy of an expression in which names of select items are replaced by the items' expressions. Only the first
    ``limit`` items are considered; None means all items.

    ``is_column`` returns True for a name that refers to a column of the input. Inside an item's expression, the column
    names in ``known`` take precedence over the names of earlier items, as in Spark. Expressions whose normalized trees
    (see :func:`spelling_of`) are in ``wholes`` are left unchanged.
    """
    from sqlglot import exp

    @cache  # called only if needed: most keys are columns and need no items
    def items() -> dict[str, tuple[int, exp.Expr]]:
        # Without an alias, a field such as a.b.c has the name c. Another column without an alias has its own name.
        return {
            item.alias_or_name.lower(): (place, inner(item))
            for place, item in reversed(list(enumerate(core.expressions[:limit])))
            if isinstance(item, exp.Alias) or _is_field(core, item)
        }

    relations = {read.alias_or_name.lower() for read in _inputs(core)}
    copied = given.copy()
    spelled = part_spellings_of(core, known)(copied) if wholes else {}

    def replaced(node: exp.Expr) -> exp.Expr:
        if wholes and spelled[id(node)] in wholes:
            return node.copy()  # The transformation does not look into a new node.
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        first, *fields = node.parts
        name = first.name.lower()
        if is_column(node, name) or (fields and name in relations) or name not in items():
            return node
        place, item = items()[name]
        value = exp.paren(_without_names(core, item, lambda _, inside: inside in known, known, place), copy=False)
        return exp.Dot.build([value, *(field.copy() for field in fields)]) if fields else value

    return copied.transform(replaced, copy=False)


def _inputs(core: exp.Select) -> list[exp.Expr]:
    return [read_by(core), *(join.this for join in core.args.get("joins") or ())]


def input_columns(core: exp.Select, relations: Mapping[str, Sequence[str]]) -> frozenset[str] | None:
    """The lower-case names that columns of a select's input may have; None if the names are unknown. ``relations`` maps
    the names of relations to their columns."""
    from sqlglot import exp

    known = {name.lower(): columns for name, columns in relations.items()}
    found: set[str] = set()
    for read in _inputs(core):
        for node in read.find_all(exp.Table, exp.Alias, exp.TableAlias, exp.Values, exp.UDTF):
            if isinstance(node, exp.Alias):
                found.add(node.alias.lower())
            elif isinstance(node, exp.TableAlias):
                found |= {column.name.lower() for column in node.columns}
            elif isinstance(node, exp.Table) and not node.db and node.name.lower() in known:
                found |= {column.lower() for column in known[node.name.lower()]}
            else:
                return None
        for select in read.find_all(exp.Select):
            for item in select.expressions:
                if isinstance(item, exp.Star):
                    continue
                # The columns of an item are unknown if the query does not name them: a.*, json_tuple(…).
                if not item.output_name or item.output_name == "*":
                    return None
                found.add(item.output_name.lower())
    return frozenset(found)


def spelling_of(core: exp.Select, columns: Iterable[str] | None = None) -> Callable[[exp.Expr], exp.Expr]:
    """Returns a function that returns the same tree for all spellings of an expression in a select. Two spellings may
    differ in parentheses, in the case of column names, and in the name of the input before a column. One spelling may
    also have ``window`` where another has the call that makes the window. For ``columns``, see :func:`group_keys`.

    Names after a column keep their case, because such a name may be a key of a MAP, and keys are values. The names of
    fields that an expression makes also keep their case, because the names may become part of a text value.

    The result is only for comparison: it may contain names that Spark would not accept without quotes.
    """
    spelled = part_spellings_of(core, columns)
    return lambda value: spelled(value)[id(value)]


def part_spellings_of(
    core: exp.Select, columns: Iterable[str] | None = None
) -> Callable[[exp.Expr], dict[int, exp.Expr]]:
    """Returns a function that computes the tree of :func:`spelling_of` for an expression and for each of its parts. The
    trees are returned by the ``id`` of the part. The running time is linear in the size of the expression."""
    from sqlglot import exp

    known = {column.lower() for column in columns or ()}
    qualifiers = _qualifiers(core, columns)
    shared = _shared_names(core, qualifiers) if core.args.get("joins") else frozenset[str]()
    window: exp.Expr | None = None

    def of_input(column: exp.Column) -> exp.Expr:
        names = [part.name for part in column.parts]
        lowered = [name.lower() for name in names]
        count = len(_qualifier(tuple(lowered), qualifiers))
        if not isinstance(column.parent, exp.ArraysZip):  # In arrays_zip, columns become field names.
            # An input may be named like its column. In this case, a name that is not a column is a field, or a key of a
            # MAP.
            cased = count + (not count or lowered[count] in known)
            names[:cased] = lowered[:cased]
        first, *fields = names[0 if lowered[count] in shared else count :]
        read = window.copy() if window is not None and first == _WINDOW and not count else exp.column(first)
        return exp.Dot.build([read, *(exp.to_identifier(name, quoted=False) for name in fields)]) if fields else read

    def spelled(value: exp.Expr) -> dict[int, exp.Expr]:
        whole = exp.Paren(this=value.copy())
        parts = list(whole.this.walk())
        instead: dict[int, exp.Expr] = {}
        for node in parts:
            if isinstance(node, exp.Identifier):
                node.set("quoted", False)
            elif isinstance(node, exp.Column) and not node.is_star:
                instead[id(node)] = node.replace(of_input(node))
            elif isinstance(node, exp.Paren):
                instead[id(node)] = node.replace(node.this)
        hash(whole)  # sqlglot keeps the hashes of all parts, so that the parts can be compared in constant time.
        found: dict[int, exp.Expr] = {}
        for given, node in zip(value.walk(), parts, strict=True):
            while id(node) in instead:
                node = instead[id(node)]
            found[id(given)] = node
        return found

    if columns is not None and _WINDOW not in known:
        calls = (call for call in core.find_all(exp.Anonymous) if call.name.lower() == _WINDOW)
        call = next((call for call in calls if call.parent_select is core), None)
        window = None if call is None else spelled(call)[id(call)]
    return spelled


def _qualifiers(core: exp.Select, columns: Iterable[str] | None) -> dict[tuple[str, ...], int]:
    """The names of a select's inputs that may stand before the name of a column. Each name (in parts and in lower case)
    is mapped to the place of its input. The result is empty if any unqualified column name may have a different meaning
    from the qualified name."""
    from sqlglot import exp

    joins = core.args.get("joins") or ()
    if joins and (columns is None or any(join.args.get("method") for join in joins)):
        return {}  # NATURAL joins by columns that the query does not name.
    found: dict[tuple[str, ...], int] = {}
    for place, read in enumerate(_inputs(core)):
        parts = [part.name.lower() for part in read.parts] if isinstance(read, exp.Table) and not read.alias else []
        names = [tuple(parts[at:]) for at in range(len(parts))] or [(read.alias_or_name.lower(),)]
        found |= dict.fromkeys(names, place)
    # Over several inputs, a.b is the field b of a column a if no input named a has a column b.
    of_columns = {column.lower() for column in columns or ()} if joins else set()
    return {names: place for names, place in found.items() if names[0] not in of_columns}


def _qualifier(names: tuple[str, ...], qualifiers: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """The leading part of a column's dotted name that names an input; empty if the column is written without an
    input."""
    return next((names[:at] for at in range(len(names) - 1, 0, -1) if names[:at] in qualifiers), ())


def _shared_names(core: exp.Select, qualifiers: Mapping[tuple[str, ...], int]) -> frozenset[str]:
    """Returns the column names, in lower case, that may refer to columns of several inputs of a select. These are the
    columns that USING names, and the columns that the select qualifies with more than one input."""
    from sqlglot import exp

    shared = {name.name.lower() for join in core.args["joins"] for name in join.args.get("using") or ()}
    used: dict[str, set[int]] = {}
    for column in core.find_all(exp.Column):
        names = tuple(part.name.lower() for part in column.parts)
        if column.parent_select is core and (before := _qualifier(names, qualifiers)):
            used.setdefault(names[len(before)], set()).add(qualifiers[before])
    return frozenset(shared | {name for name, places in used.items() if len(places) > 1})


def _is_field(core: exp.Select, item: exp.Expr) -> bool:
    """True for a field of a struct column: ``a.b``, where ``a`` is not an input of the select."""
    from sqlglot import exp

    column, is_deep = item, False
    while isinstance(column, exp.Dot) and isinstance(column.expression, exp.Identifier):
        column, is_deep = column.this, True
    if not isinstance(column, exp.Column) or item.is_star:
        return False
    first, *fields = column.parts
    is_qualified = bool(fields) and first.name.lower() in {read.alias_or_name.lower() for read in _inputs(core)}
    return is_deep or len(fields) > is_qualified


def bare(key: exp.Expr) -> exp.Expr:
    """Returns a key without the parentheses around the whole key."""
    from sqlglot import exp

    while isinstance(key, exp.Paren):
        key = key.this
    return key


def stored(core: exp.Select, key: exp.Expr) -> exp.Expr:
    """Returns a key of a select in the form that a hidden column of the table stores.

    For a time window that the query makes, only the start is stored, because all these windows have the same length. A
    column of a relation is stored unchanged, even if its name is ``window``, because the windows in this column may
    have different lengths.
    """
    from sqlglot import exp

    if _is_window(core, key):
        return exp.Dot(this=key.copy(), expression=exp.to_identifier("start"))
    return key.copy()


def _is_window(core: exp.Select, key: exp.Expr) -> bool:
    """True for a call of Spark's function for time windows, and for a column that a subquery in FROM makes by calling
    this function."""
    from sqlglot import exp

    if isinstance(key, exp.Anonymous):
        return key.name.lower() == _WINDOW
    read = read_by(core)
    if not isinstance(key, exp.Column) or key.name.lower() != _WINDOW or not isinstance(read, exp.Subquery):
        return False
    below = read.this
    if not isinstance(below, exp.Select) or read.alias_column_names or not _is_of(key, read.alias_or_name):
        return False
    made = next((item for item in below.expressions if item.alias_or_name.lower() == _WINDOW), None)
    return made is not None and _is_window(below, bare(inner(made)))


def inner(item: exp.Expr) -> exp.Expr:
    """The expression of a select item, without the item's name."""
    from sqlglot import exp

    found: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return found


def is_column(item: exp.Expr) -> bool:
    """True if a select item is a column of the input or a field of such a column."""
    from sqlglot import exp

    return isinstance(bare(inner(item)), exp.Column) and not item.is_star


def output_of(select: exp.Select, column: str) -> str | None:
    """Returns the name that a column of a select's only input has in the result; None if the select does not return the
    column."""
    relation = read_by(select).alias_or_name
    for item in select.expressions:
        read = bare(inner(item))
        if is_column(item) and _is_of(read, relation) and read.name.lower() == column.lower():
            return str(item.alias_or_name)
    return column if any(column.lower() not in _left_out(star) for star in stars_of(select)) else None


def stars_of(select: exp.Select) -> list[exp.Star]:
    """The items of a select that return all columns of its only input, except columns that the items exclude by name.
    An item ``s.*`` for a struct ``s`` returns only the fields of ``s``, not the input's columns."""
    from sqlglot import exp

    relation = read_by(select).alias_or_name
    found = (item for item in select.expressions if item.is_star and _is_of(item, relation))
    return [item if isinstance(item, exp.Star) else item.this for item in found]


def leave_out(star: exp.Star, column: str) -> None:
    """Adds a column to the EXCEPT list of a ``*``."""
    from sqlglot import exp

    star.set("except_", [*(star.args.get("except_") or []), exp.to_identifier(column)])


def _is_of(column: exp.Expr, relation: str) -> bool:
    """True if a column or ``*`` has no qualifier, or if its qualifier is the name of the select's input. Any other
    qualifier may be a struct column of the input."""
    from sqlglot import exp

    if not isinstance(column, exp.Column):
        return True
    return not column.db and column.table.lower() in ("", relation.lower())


def _left_out(star: exp.Star) -> set[str]:
    """The lower-case names of the columns that a ``*`` does not return, or returns without some fields."""
    from sqlglot import exp

    parts = [part for name in ("except_", "replace", "rename") for part in star.args.get(name) or ()]
    return {name.name.lower() for part in parts for name in part.find_all(exp.Identifier)}
