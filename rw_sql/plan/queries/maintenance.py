"""Chooses how a view is kept up to date. The choice depends on the structure of the view's query, and on how the rows
of the view's inputs change."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.support.nullable_schemas import nullable_fields, nullable_schema
from rw_sql.metastore.records import (
    CHANGES,
    COMBINED,
    DIFF,
    KEYS,
    SIGNED,
    UPSERT,
    Maintenance,
    MaterializedViewRecord,
    SourceRecord,
)
from rw_sql.model.object_lookup import spoken
from rw_sql.model.relations import Relation, changes_rows, hidden_columns, relation_of, schema_columns
from rw_sql.plan.ports.queries import TABLESAMPLE, WHOLE, QueryAnalysis
from rw_sql.plan.ports.queries import UPSERT as AS_UPSERT
from rw_sql.plan.queries.key_types import collated_input, unfit_key
from rw_sql.syntax.lexing.identifiers import spark_name, sql_name
from rw_sql.syntax.query.combined_groups import GROUPS_RELATION
from rw_sql.syntax.query.maintained_form import KEEP, KEY, NOT_TAKEN_APART, ROW, read_view_query
from rw_sql.syntax.query.signed_aggregates import SIGN
from rw_sql.syntax.query.trees import DISTINCT, GROUPS, JOIN, ONE_ROW, OTHER, ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.query.maintained_form import Form, ViewQuery

_PICKING = frozenset({"Project", "Filter", "SubqueryAlias", "View", "ResolvedHint", "Range", "LocalRelation"})
"""A query whose Spark plan contains only these operators only filters and projects the rows of one relation."""

_OF_GROUPS = _PICKING | {"Aggregate", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
"""A grouped query whose Spark plan contains only these operators returns at most one row per group. Operators for hints
such as COALESCE are included, because they only move rows between partitions."""

_ROW_COLUMN = '{"type":"struct","fields":[{"name":"' + ROW + '","type":"string","nullable":true,"metadata":{}}]}'

_WHOLE_BECAUSE = {
    ROWS: "it produces several rows from one, or reads several tables",
    GROUPS: "it aggregates the result of another query or of a join",
    ONE_ROW: "its single row depends on every row of its inputs",
    DISTINCT: "it has a DISTINCT inside or over another query or a join",
    JOIN: "it joins more than two views, or not on equal columns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """A view's schema, keys and maintenance. If the view cannot be kept up to date, ``refused`` contains the reason.

    ``notice`` is a notice for the result of CREATE, or empty.
    """

    schema: str = ""
    keys: tuple[str, ...] = ()
    maintenance: Maintenance = field(default_factory=Maintenance)
    refused: QueryAnalysis | None = None
    notice: str = ""


def decide(inspector: Inspector, text: str, inputs: tuple[ObjectRecord, ...], *, closes_windows: bool) -> Maintained:
    """Chooses the first strategy that yields the same rows as a batch run of the query.

    The strategies are tried in this order: Spark runs the query as a stream; the view applies the row changes of its
    input; the affected rows are recomputed; all rows are recomputed.
    """
    relations = tuple(relation_of(record) for record in inputs)
    changing = tuple(record for record in inputs if changes_rows(record))
    sources = [record.name for record in inputs if isinstance(record, SourceRecord)]
    if (collated := collated_input(text, inputs)) is not None:
        return Maintained(refused=collated)
    streamed: QueryAnalysis | None = None
    unfit: QueryAnalysis | None = None
    if not changing:
        streamed = inspector.queries.analyze(text, relations, closes_windows=closes_windows)
        if streamed.refusal is None:
            if streamed.varies == TABLESAMPLE:
                return Maintained(refused=_sampled())
            if streamed.varies is not None and (streamed.keys or streamed.varies_in or closes_windows):
                return Maintained(refused=_varying(streamed.varies))
            combined = None
            if streamed.keys and not closes_windows:
                combined = _combined(inspector, read_view_query(text), streamed.schema, relations, streamed.keys, text)
            made = combined or _streamed(streamed, closes_windows=closes_windows)
            if (unfit := _unfit(made)) is None or sources:
                return made if unfit is None else Maintained(refused=unfit)
    if closes_windows:
        return Maintained(
            refused=streamed
            or QueryAnalysis(
                refusal=f'EMIT ON WINDOW CLOSE cannot be used over {spoken(changing[0].kind)} "{changing[0].name}": '
                "its rows are replaced, so a window over it never closes",
                hint="omit EMIT ON WINDOW CLOSE, or read the view's source instead",
            )
        )
    query = read_view_query(text)
    whole = inspector.queries.analyze(text, relations, form=WHOLE, same_as=query.text)
    if whole.refusal is not None:
        return Maintained(refused=streamed or whole)
    if whole.varies == TABLESAMPLE:
        return Maintained(refused=_sampled())
    if not whole.is_same:
        query = NOT_TAKEN_APART
    elif query.kind in (GROUPS, ONE_ROW) and not whole.operators <= _OF_GROUPS:
        query = replace(query, kind=OTHER, why="it produces several rows from one group")
    found: Maintained | None = None
    if not changing:
        found = _combined(inspector, query, whole.schema, relations) or _upserted(inspector, query, whole, relations)
        unfit = _unfit(found) or unfit
        if (found is None or unfit is not None) and sources and streamed is not None:
            return Maintained(refused=unfit or _needs_rows(streamed, query, sources))
    elif len(inputs) == 1:
        found = _following(inspector, query, whole, changing[0], relations[0])
    unfit = _unfit(found) or unfit
    found = found if unfit is None else None
    if found is not None and whole.varies is not None:
        return Maintained(refused=_varying(whole.varies))
    if found is None and whole.varies is not None:
        return Maintained(refused=_random(text, whole.varies))
    if found is None and unfit is None:
        found = _touched(inspector, query, whole, relations)
        unfit = _unfit(found)
    return found if found is not None and unfit is None else _compared(query, whole, unfit)


def _unfit(found: Maintained | None) -> QueryAnalysis | None:
    return None if found is None else unfit_key(found.keys, found.schema, found.maintenance.hidden)


_RANDOM = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|now|current_timestamp|current_date|localtimestamp|curdate"
    r"|monotonically_increasing_id|spark_partition_id)\b",
    re.IGNORECASE,
)


def _random(query: str, varies: str) -> QueryAnalysis:
    """Returns the refusal of a query that uses a random function or the current time: recomputing its view would change
    rows even if the inputs have not changed. If the query contains no known function of this kind, the message names
    ``varies``, the part of the query that is not deterministic."""
    found = _RANDOM.search(query)
    called = f"{found[1].lower()}()" if found is not None else varies
    return QueryAnalysis(
        refusal=f"the view is recomputed when its inputs change, but {called} returns another value each time",
        hint=f"remove {called}: a recomputed view needs deterministic functions",
        word=found[1] if found is not None else "",
    )


def _sampled() -> QueryAnalysis:
    """Returns the refusal of a query that draws a sample of rows. Each recomputation would draw a different sample."""
    return QueryAnalysis(
        refusal="the query has TABLESAMPLE, which draws other rows each time the query runs",
        hint="choose the rows by their values: for one row in ten, replace TABLESAMPLE with "
        "WHERE pmod(hash(column), 10) = 0 with a key column",
        word=TABLESAMPLE,
    )


def _varying(varies: str) -> QueryAnalysis:
    """Returns the refusal of a query with a value that changes with time. A view is updated only when rows of its
    inputs change, so its rows would keep the old value."""
    return QueryAnalysis(
        refusal=f"the query uses {varies}, whose value changes over time, but rows would keep their first values",
        hint=f"remove {varies}, and filter when you query the view; or use a time from the records: INCLUDE timestamp",
    )


def kept_as(view: MaterializedViewRecord) -> str:
    """A short text about how a view stores its rows, such as ``append-only`` or ``one row per (k)``."""
    if not view.keys:
        return "append-only"
    if view.maintenance.is_one_row:
        return "one row"
    if visible_keys(view) == view.keys:
        return f"one row per ({', '.join(view.keys)})"
    return "recomputed as its inputs change" if view.maintenance.is_recomputed else "one row per group"


def how_maintained(view: MaterializedViewRecord) -> str:
    """A text that begins with ``incremental`` or ``recomputed`` and states the reason."""
    word = "recomputed" if view.maintenance.is_recomputed else "incremental"
    reason = view.maintenance.reason or (
        "a new row replaces the row with the same key" if view.keys else "rows are only appended"
    )
    return f"{word}: {reason}"


def visible_keys(view: MaterializedViewRecord) -> tuple[str, ...]:
    """The columns of a view's key that queries can see. (A new row replaces the row with the same key.)"""
    return tuple(key for key in view.keys if not key.startswith((KEY, ROW)))


def _combined(
    inspector: Inspector,
    query: ViewQuery,
    schema: str,
    relations: tuple[Relation, ...],
    keys: tuple[str, ...] = (),
    text: str = "",
    *,
    follows: str = "",
) -> Maintained | None:
    """Returns the maintenance that combines the groups of each batch with the view's rows. Returns None if the groups
    of the query cannot be combined in this way.

    ``schema`` is the query's own schema. ``keys``, if given, are the query's key columns. ``text``, if given, is the
    query as the user wrote it. Its meaning may differ from the meaning of ``query``; in this case, the result is None.
    ``follows``, if given, is the name of an input whose rows change. In this case, each row that the view reads has a
    sign: 1 for added rows, -1 for removed rows. For an input with a watermark, the result is None, because Spark itself
    must then keep the groups to drop late rows.
    """
    if len(relations) != 1 or relations[0].watermark is not None or any(word in schema for word in _NOT_COMBINED):
        return None
    parts = query.decomposed([name for name, _ in relations[0].columns], is_signed=bool(follows))
    if parts is None or (keys and {*keys} != {*parts.keys}):
        return None
    if text and not inspector.queries.analyze(text, relations, form=WHOLE, same_as=query.text).is_same:
        return None
    typed = schema
    if not parts.is_whole:
        found = inspector.queries.analyze(parts.typed_text, relations, form=WHOLE)
        if found.refusal is not None or any(word in found.schema for word in _NOT_COMBINED):
            return None
        typed = found.schema
    types = dict(schema_columns(typed))
    lifted = parts.lifted(types)
    read = relations
    if follows:
        read = (replace(relations[0], columns=(*relations[0].columns, (SIGN, "BIGINT"))),)
    if lifted is None or not _returns(inspector, lifted.text, read, {name: types[name] for name in parts.names}):
        return None
    groups = Relation(name=GROUPS_RELATION, columns=tuple((name, types[name]) for name in parts.names))
    stored = {**dict(schema_columns(schema)), **dict(groups.columns)}
    if lifted.derived and not _returns(inspector, lifted.derived, (groups,), stored):
        return None
    fields = {field["name"]: field for text in (typed, schema) for field in json.loads(text)["fields"]}
    hidden = [fields[name] for name in stored if name not in parts.columns]
    is_one_row = query.kind == ONE_ROW
    by_key = f" by key ({', '.join(keys)})" if keys else ""
    reason = f"new rows are combined with the view's {'row' if is_one_row else 'groups' + by_key}"
    if follows and query.kind == DISTINCT:
        reason = f"the changes of {follows} update the number of equal rows; a row whose number becomes 0 is removed"
    elif follows:
        reason = f"counts and sums follow the changes of {follows}: removed values are subtracted"
    return Maintained(
        schema=nullable_schema(schema),
        keys=keys or parts.keys,
        maintenance=Maintenance(
            strategy=COMBINED,
            reason=reason,
            query=lifted.text,
            hidden=nullable_fields(hidden) if hidden else "",
            is_one_row=is_one_row,
            combine=tuple(lifted.functions[name] for name in stored),
            derived=lifted.derived,
        ),
    )


_SIGNED_AGGREGATES = frozenset({"Sum"})
"""Spark's names of the aggregate functions for which a removed row can be subtracted from the result."""

_NOT_COMBINED = ("COLLATION", '"void"')
"""If a schema contains one of these texts, its rows cannot be combined: the schema has strings that Arrow and Spark
compare differently, or columns of unknown types."""


def _returns(inspector: Inspector, text: str, relations: tuple[Relation, ...], columns: Mapping[str, str]) -> bool:
    """True if Spark accepts the query, if the query works row by row (its result has no keys), and if the query returns
    exactly the given columns, in any order."""
    found = inspector.queries.analyze(text, relations)
    return found.refusal is None and not found.keys and dict(schema_columns(found.schema)) == columns


def _streamed(found: QueryAnalysis, *, closes_windows: bool) -> Maintained:
    if closes_windows:
        reason = "a window's rows are appended when the watermark has passed its end"
    elif found.keys:
        reason = f"the groups are kept as state, and rows are replaced by key ({', '.join(found.keys)})"
    else:
        reason = "rows are only appended"
    notice = ""
    if found.varies is not None:
        notice = (
            f"the query uses {found.varies}: each row keeps the value from when the row was read, and a rebuild "
            "computes another value"
        )
    return Maintained(
        schema=nullable_schema(found.schema),
        keys=found.keys,
        maintenance=Maintenance(reason=reason),
        notice=notice,
    )


def _needs_rows(streamed: QueryAnalysis, query: ViewQuery, sources: list[str]) -> QueryAnalysis:
    """Refuses to recompute a view from a source, because a source's log does not keep old rows. The view must read a
    table or a view instead."""
    name, why = sources[0], f": {query.why}" if query.why else ""
    if "session_window" in query.text.lower():
        return replace(
            streamed,
            hint=f"{'use GROUP BY in place of DISTINCT, and ' if query.kind == DISTINCT else ''}"
            "add EMIT ON WINDOW CLOSE: the view then gets each session window once, after it has ended; before "
            "that, two session windows may become one",
        )
    return QueryAnalysis(
        refusal=f"the query cannot be kept up to date over a source{why or ': ' + (streamed.refusal or '')}",
        hint=f"CREATE MATERIALIZED VIEW {sql_name(name + '_rows')} AS SELECT * FROM {spark_name(name)}, and query "
        f"{spark_name(name + '_rows')}: over that view, the query is recomputed when rows arrive",
    )


def _upserted(
    inspector: Inspector, query: ViewQuery, whole: QueryAnalysis, relations: tuple[Relation, ...]
) -> Maintained | None:
    types = _types_of(inspector, query, query.distinct_arguments(), relations)
    form = None if types is None else query.upserted(types, _columns_by_name(relations))
    if form is None:
        return None
    found = inspector.queries.analyze(form.text, relations, form=AS_UPSERT)
    what = "one row is" if query.kind == ONE_ROW else "the groups are"
    maintenance = Maintenance(
        strategy=UPSERT,
        reason=f"{what} kept, and replaced as rows arrive",
        query=form.text,
        is_one_row=query.kind == ONE_ROW,
    )
    return _fitted(form, found, whole, maintenance)


def _following(
    inspector: Inspector, query: ViewQuery, whole: QueryAnalysis, view: ObjectRecord, relation: Relation
) -> Maintained | None:
    """Returns the maintenance for a query over one view or table, which applies the row changes of that input to the
    query's result.

    Returns None if the result cannot be maintained from these changes.
    """
    if query.kind == ROWS and whole.operators <= _PICKING:
        if not isinstance(view, MaterializedViewRecord):
            return None
        form = query.with_keys(view.keys)
        if form is None:
            return None
        keys = tuple(column for column in hidden_columns(view) if column[0] in view.keys)
        wider = replace(relation, columns=(*relation.columns, *keys))
        found = inspector.queries.analyze(form.text, (wider,), form=WHOLE)
        maintenance = Maintenance(
            strategy=CHANGES,
            reason=f"the changed rows of {view.name} are filtered and projected again, and replace the rows with the "
            "same keys",
            query=form.text,
        )
        return _fitted(form, found, whole, maintenance)
    combined = _combined(inspector, query, whole.schema, (relation,), follows=view.name)
    if combined is not None:
        return combined
    arguments = query.signed_arguments()
    if arguments is None:
        return None
    types = _types_of(inspector, query, arguments, (relation,))
    form = None if types is None else query.signed(types, _columns_by_name((relation,)))
    if form is None:
        return None
    found = inspector.queries.analyze(
        form.text, (replace(relation, columns=(*relation.columns, (SIGN, "BIGINT"))),), form=AS_UPSERT
    )
    if not found.aggregates <= _SIGNED_AGGREGATES:
        # The query has an aggregate that is not rewritten, so removed values would stay in the result of this
        # aggregate.
        return None
    maintenance = Maintenance(
        strategy=SIGNED,
        reason=f"counts and sums follow the changes of {view.name}: removed values are subtracted",
        query=form.text,
        is_one_row=query.kind == ONE_ROW,
    )
    return _fitted(form, found, whole, maintenance)


def _columns_by_name(relations: tuple[Relation, ...]) -> dict[str, list[str]]:
    return {relation.name: [name for name, _ in relation.columns] for relation in relations}


def _types_of(
    inspector: Inspector, query: ViewQuery, arguments: tuple[str, ...], relations: tuple[Relation, ...]
) -> dict[str, str] | None:
    """Returns the types of the arguments of a query's aggregate functions. Returns None if Spark refuses these
    arguments."""
    if not arguments:
        return {}
    probe = inspector.queries.analyze(query.probe(arguments), relations, form=WHOLE)
    if not probe.schema:
        return None  # An argument, unlike a column, may be of a type that a table cannot store.
    return dict(zip(arguments, (kind for _, kind in schema_columns(probe.schema)), strict=True))


def _touched(
    inspector: Inspector, query: ViewQuery, whole: QueryAnalysis, relations: tuple[Relation, ...]
) -> Maintained | None:
    """Returns the maintenance that recomputes only the rows affected by changes."""
    if query.kind == DISTINCT and (touched := query.touched_rows()) is not None:
        rows = inspector.queries.analyze(touched, relations)
        if rows.refusal is not None or rows.keys:
            return None
        names = tuple(name for name, _ in schema_columns(whole.schema))
        reason = "the results of changed rows are computed again; a result that no row yields any more is removed"
        maintenance = Maintenance(strategy=KEYS, reason=reason, touched=touched, partition=names)
        return Maintained(schema=nullable_schema(whole.schema), keys=names, maintenance=maintenance)
    if query.kind == JOIN and len(relations) == 2 and (pair := query.partitioned()) is not None:
        form, touched, sides = pair
        pairs = inspector.queries.analyze(sides, relations, form=WHOLE)
        if not _can_be_united(inspector.queries.analyze(touched, relations), pairs):
            return None
        found = inspector.queries.analyze(form.text, relations, form=WHOLE)
        maintenance = Maintenance(
            strategy=KEYS,
            reason="the rows with the join keys of changed rows are joined again",
            query=form.text,
            touched=touched,
            partition=form.keys,
        )
        return _fitted(form, found, whole, maintenance, keys=(ROW,))
    exposed = query.exposed(_columns_by_name(relations))
    if exposed is None or not query.is_direct:
        return None
    inner = query.touched_groups(exposed.keys, [name for name, _ in relations[0].columns])
    if inner is None:
        return None
    groups, found = (inspector.queries.analyze(text, relations, form=WHOLE) for text in (inner, exposed.text))
    if groups.refusal is not None or found.refusal is not None:
        return None
    here, there = (dict(schema_columns(analysis.schema)) for analysis in (groups, found))
    if any(here.get(key) != there.get(key) for key in exposed.keys):
        return None  # The keys of the groups and of the view could not be compared.
    reason = "the groups of changed rows are computed again, because Spark cannot remove a row from such an aggregate"
    maintenance = Maintenance(strategy=KEYS, reason=reason, query=exposed.text, touched=inner, partition=exposed.keys)
    return _fitted(exposed, found, whole, maintenance)


def _can_be_united(touched: QueryAnalysis, pairs: QueryAnalysis) -> bool:
    """True if a stream can return the values of both sides of a join in one column. ``pairs`` lists the columns in
    pairs: a column of one side, followed by the matching column of the other side.

    If one side is a string and the other side has another type, Spark converts the string to that type. The result is
    then False, because the conversion can fail, even for a row that the view's query would filter out.
    """
    if touched.refusal is not None or pairs.refusal is not None:
        return False
    types = [kind for _, kind in schema_columns(pairs.schema)]
    return all(one == other or "STRING" not in one + other for one, other in zip(types[::2], types[1::2], strict=True))


def _compared(query: ViewQuery, whole: QueryAnalysis, unfit: QueryAnalysis | None) -> Maintained:
    why = (unfit.refusal if unfit is not None else query.why) or _WHOLE_BECAUSE[query.kind]
    reason = f"{why}, so the whole result is computed again; only changed rows are written"
    maintenance = Maintenance(strategy=DIFF, reason=reason, hidden=_ROW_COLUMN)
    return Maintained(schema=nullable_schema(whole.schema), keys=(ROW,), maintenance=maintenance)


def _fitted(
    form: Form,
    found: QueryAnalysis,
    whole: QueryAnalysis,
    maintenance: Maintenance,
    keys: tuple[str, ...] | None = None,
) -> Maintained | None:
    """Completes a maintenance that uses the rewritten query ``form``. Returns None if Spark refuses ``form``, or if
    ``form`` does not return exactly the columns of the original query and the key columns of ``form``."""
    if found.refusal is not None:
        return None
    fields = json.loads(found.schema)["fields"]
    names = [field["name"] for field in fields]
    if len({name.lower() for name in names}) < len(names) or not {*form.keys} <= {*names}:
        return None
    hidden = [field for field in fields if field["name"].startswith(KEY)]
    visible = [field for field in fields if not field["name"].startswith((KEY, KEEP))]
    wanted = json.loads(whole.schema)["fields"]
    if [(f["name"], f["type"]) for f in visible] != [(f["name"], f["type"]) for f in wanted]:
        return None
    added = hidden if keys is None else [*hidden, *json.loads(_ROW_COLUMN)["fields"]]
    return Maintained(
        schema=nullable_schema(whole.schema),
        keys=form.keys if keys is None else keys,
        maintenance=replace(maintenance, hidden=nullable_fields(added) if added else ""),
    )
