"""Fills in values that records omit because these values did not change. The values come from the existing rows.

The log's column ``_rw_unchanged`` lists the omitted values (see
:mod:`rw_sql.runtime.decoding.change_formats.unchanged`), because a NULL may also be a record's actual value. If the
table has no row from which an omitted value can be filled in, the value is unknown and becomes NULL. The row's column
``_rw_unknown`` lists unknown values until a record provides them. For a table ``t``, ``SELECT * FROM `t$errors` ``
shows the rows with unknown values. If a repeated snapshot of an upstream table reads a row again, the row's column
INCLUDE timestamp is also filled in from the existing row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import MapType, StringType, StructType

from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.metastore.records import IF_NOT_NULL
from rw_sql.model.definitions import KEPT_TIME, unchanged_path
from rw_sql.runtime.decoding.change_formats.unchanged import MOVED
from rw_sql.runtime.jobs.inputs import as_in_files
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.views.key_records import (
    DELETE,
    OP,
    ORDER,
    UNCHANGED,
    UNKNOWN,
    is_kept,
    later,
    nullable,
    order,
    then_of,
    visible,
)
from rw_sql.runtime.views.recomputed import EXACT_JSON, exact_text
from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import ArrayType, DataType

    from rw_sql.model.job_specs import KeyedRows, ViewSpec

_EVENTS, _OLD, _NEW = "_rw_events", "_rw_old", "_rw_new"
_KEY, _FROM, _GROUP, _IS_MOVED = "_rw_key_text", "_rw_from", "_rw_group", "_rw_moved"
_NONE = "array<string>"


def with_unknown(frame: DataFrame) -> DataFrame:
    """Adds the table's column ``_rw_unknown`` to records, with the value NULL."""
    return frame.withColumn(UNKNOWN, f.lit(None).cast(_NONE))


def filled(given: Column, known: Column, unchanged: Column, row: StructType, rows: KeyedRows) -> Column:
    """Returns the record's row ``given``, with the omitted values ``unchanged`` filled in from the existing row
    ``known``."""
    paths = dict(rows.paths)
    if not paths:
        return given
    parts = []
    for field in row.fields:
        new, old = given.getField(field.name), known.getField(field.name)
        if field.name == UNKNOWN:
            told = _unknown(known, unchanged, _untold(given, row, paths) if rows.conflict == IF_NOT_NULL else unchanged)
        elif field.name in paths:
            told = _merged(paths[field.name], new, old, unchanged, field.dataType)
        else:
            told = new
        parts.append(told.alias(field.name))
    return f.struct(*parts).cast(row)


def _merged(path: str, new: Column, old: Column, unchanged: Column, kind: DataType) -> Column:
    is_unchanged = f.coalesce(f.array_contains(unchanged, path), f.lit(False))
    told = new
    if isinstance(kind, StructType):
        parts = [
            _merged(
                f"{path}.{unchanged_path([field.name])}",
                new.getField(field.name),
                old.getField(field.name),
                unchanged,
                field.dataType,
            ).alias(field.name)
            for field in kind.fields
        ]
        told = f.when(new.isNotNull(), f.struct(*parts).cast(kind))
    return f.when(is_unchanged, f.coalesce(old, new) if path == KEPT_TIME else old).otherwise(told)


def _untold(given: Column, row: StructType, paths: dict[str, str]) -> Column:
    """Returns the paths of the columns that are NULL in a record. With DO UPDATE IF NOT NULL, these columns keep their
    existing values."""
    nulls = (
        f.when(given.getField(field.name).isNull(), f.lit(paths[field.name]))
        for field in row.fields
        if field.name in paths
    )
    return f.array_compact(f.array(*nulls))


def _unknown(known: Column, unchanged: Column, stays: Column) -> Column:
    """The paths of the values that are unknown after a record was applied. If there is no existing row, these are the
    paths of all omitted values. If there is one, these are the paths of the values that the record omits and that were
    unknown in the existing row."""
    none = f.array().cast(_NONE)
    marks = f.filter(unchanged, lambda path: ~path.isin(MOVED, KEPT_TIME))
    before = known.getField(UNKNOWN)
    inner = f.filter(before, lambda path: f.exists(f.coalesce(stays, none), lambda mark: _covers(mark, path)))
    outer = f.filter(marks, lambda mark: f.exists(before, lambda path: _covers(path, mark)))
    still = f.array_union(f.coalesce(inner, none), f.coalesce(outer, none))
    left = f.when(known.isNull(), marks).otherwise(still)
    return f.when(f.size(left) > 0, left)


def _covers(path: Column, other: Column) -> Column:
    """True if ``path`` equals ``other``, or if ``path`` is the path of a struct that contains the value at
    ``other``."""
    return (path == other) | other.startswith(f.concat(path, f.lit(".")))


def recomputed(changes: DataFrame, spec: ViewSpec) -> DataFrame:
    """Returns changed rows with computed columns that the table's query has computed again from the other columns."""
    table = spec.inputs[0]
    names = {stored: name for name, stored in spec.stored_names}
    renamed = changes.select(*(f.col(quoted_for_spark(name)).alias(names.get(name, name)) for name in changes.columns))
    for name in table.columns:
        if name not in renamed.columns:
            renamed = renamed.withColumn(name, f.lit(None))
    register_view(renamed, table.name)
    head, _, source = spec.query.rpartition(" FROM ")
    found = changes.sparkSession.sql(f"{head}, `{UNKNOWN}`, `{KEEP}` FROM {source}")
    return as_in_files(found, spec).select(*(quoted_for_spark(name) for name in changes.columns))


def settled_moves(frame: DataFrame, own: DataFrame, rows: KeyedRows) -> DataFrame | None:
    """Does the same as :func:`rw_sql.runtime.views.keyed.settled` for a batch with records that change a row's key and
    omit values. Returns None if the batch has no such records.

    The omitted values of such a record are those that the row with the old key had when the key changed. Therefore, the
    records of all keys between which rows moved are applied together, in the order of the log.
    """
    moved = frame.where(f.array_contains(UNCHANGED, MOVED))
    if moved.isEmpty():
        return None
    at = [name for name in ORDER if name in frame.columns]
    key = exact_text_of(rows.primary_key)
    columns = visible(frame)
    gone = frame.where(f"{OP} = {DELETE}").select(*at, key.alias(_FROM))
    told = moved.select(*at, key.alias(_KEY)).join(gone, at).select(_FROM, _KEY).distinct().collect()
    of_keys = _groups((row[_FROM], row[_KEY]) for row in told)
    listed = {_KEY: pa.array(of_keys.keys(), pa.string()), _GROUP: pa.array(of_keys.values(), pa.string())}
    groups = local_frame(frame.sparkSession, pa.table(listed))

    def grouped(records: DataFrame) -> DataFrame:
        found = records.join(f.broadcast(groups), _KEY, "left")
        return found.withColumn(_GROUP, f.coalesce(_GROUP, _KEY))

    is_moved = f.coalesce(f.array_contains(UNCHANGED, MOVED), f.lit(False))
    moves = f.broadcast(moved.select(*at).withColumn(_IS_MOVED, f.lit(True)))
    events = frame.withColumn(_KEY, key).join(moves, at, "left").join(gone.alias("gone"), at, "left")
    # If a record moves a row to another key, the delete of the old key is handled together with the moved row.
    events = events.where(f.col(_IS_MOVED).isNull() | (f.col(OP) != DELETE))
    event = f.struct(
        f.struct(*order(frame)).alias("at"),
        is_kept(frame).alias("is_kept"),
        f.col(UNCHANGED).alias("unchanged"),
        f.col(_KEY).alias("key"),
        f.when(is_moved, f.col(_FROM)).alias("from"),
        f.struct(*columns).alias("row"),
    )
    by_group = grouped(events).groupBy(_GROUP).agg(f.collect_list(event).alias(_EVENTS))
    one_event = cast("StructType", cast("ArrayType", by_group.schema[_EVENTS].dataType).elementType)
    row = cast("StructType", nullable(one_event["row"].dataType))
    state = MapType(StringType(), row)
    there = grouped(own.select(key.alias(_KEY), f.struct(*columns).alias("row"))).join(
        by_group.select(_GROUP), _GROUP, "left_semi"
    )
    entry = f.struct(f.col(_KEY), f.col("row"))
    known = there.groupBy(_GROUP).agg(f.map_from_entries(f.collect_list(entry)).alias(_OLD))
    none = f.create_map().cast(state)
    met = by_group.join(known, _GROUP, "left").withColumn(_OLD, f.coalesce(f.col(_OLD).cast(state), none))
    names = [name.strip("`") for name in columns]

    def step(rows_now: Column, record: Column) -> Column:
        old_key = f.coalesce(record.getField("from"), record.getField("key"))
        base = f.try_element_at(rows_now, old_key)
        given = filled(record.getField("row"), base, record.getField("unchanged"), row, rows)
        there_now = f.try_element_at(rows_now, record.getField("key"))
        new = f.when(there_now.isNull(), given).otherwise(then_of(there_now, given, names, rows)).cast(row)
        others = f.map_filter(rows_now, lambda name, _: (name != record.getField("key")) & (name != old_key))
        made = f.map_concat(others, f.create_map(record.getField("key"), new)).cast(state)
        return f.when(record.getField("is_kept"), made).otherwise(others).cast(state)

    come = met.select(_OLD, f.aggregate(f.array_sort(f.col(_EVENTS), later), f.col(_OLD), step).alias(_NEW))
    keys = come.select(_OLD, _NEW, f.explode(f.array_union(f.map_keys(_OLD), f.map_keys(_NEW))).alias(_KEY))
    both = keys.select(f.try_element_at(_OLD, f.col(_KEY)).alias(_OLD), f.try_element_at(_NEW, f.col(_KEY)).alias(_NEW))
    changed = both.where(~exact_text(_OLD).eqNullSafe(exact_text(_NEW)))
    return changed.select(f.coalesce(_NEW, _OLD).alias("row"), f.col(_NEW).isNotNull().alias(KEEP)).select(
        "row.*", KEEP
    )


def exact_text_of(names: Sequence[str]) -> Column:
    """Returns the columns ``names`` as one text. Different values always have different texts."""
    return f.to_json(f.struct(*(f.col(quoted_for_spark(name)) for name in names)), EXACT_JSON)


def _groups(moves: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Divides keys into groups: keys between which rows moved, directly or through other keys, are in the same group.
    Returns a map from each key to the key that represents its group."""
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        parents.setdefault(key, key)
        while parents[key] != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    for old, new in moves:
        parents[root(old)] = root(new)
    return {key: root(key) for key in list(parents)}
