"""The changes that one record tells, per FORMAT. Spark expressions only: nothing of a record goes through Python.

A record's changes are an array of ``struct<op, error, fields, keys>``: ``fields`` maps the names of an upstream row to
the texts of their values; ``keys``, where it is not NULL, holds the key's columns instead. ``error`` says why a record
or a part of it is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.recipe import StepsT

UPSERT, DELETE = 1, -1

CHANGES = "_rw_changes"
TYPES = "_rw_types"
"""What a record's own schema says of its fields: map<name, struct<type, scale>>."""

NO_VALUE = "the record has no value"
NO_KEY = "the record has no key"

_EVENT = "_rw_event"
_KEYS = "_rw_keys"
_CORRUPT = "_rw_corrupt"
_FIELDS = "MAP<STRING, STRING>"
_TYPE = "field: STRING, name: STRING, parameters: MAP<STRING, STRING>"
_CHANGE = f"STRUCT<op: INT, error: STRING, fields: {_FIELDS}, keys: {_FIELDS}>"
_NONE = f"ARRAY<{_CHANGE}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKey:
    """A table's primary key: its columns, and whether the one column is the record's key itself (INCLUDE key)."""

    columns: tuple[str, ...]
    is_record_key: bool = False


def field_of(fields: Column, name: str) -> Column:
    """The text under a name; under the name in another case where there is none, as RisingWave looks names up."""
    like = f.filter(f.map_keys(fields), lambda key: f.lower(key) == f.lit(name.lower()))
    return f.when(f.map_contains_key(fields, f.lit(name)), f.try_element_at(fields, f.lit(name))).otherwise(
        f.try_element_at(fields, f.get(like, f.lit(0)))
    )


def exact_decimal(format: str, name: str, kind: str) -> Column | None:
    """A column's number in a record's row as it is written, in any case that names come in; None where all is text."""
    text = f.col("value").cast("string")
    found = []
    # One by one: Spark's names of one struct may not differ by their case alone.
    for each in sorted({name, name.lower(), name.upper()}):
        row = f"STRUCT<`{each.replace('`', '``')}`: {kind}>"
        match format:
            case "UPSERT":
                wrapped = f.concat(f.lit('{"row":'), text, f.lit("}"))
                found.append(f.from_json(wrapped, f"row {row}")["row"][each])
            case "DEBEZIUM":
                read = f.from_json(text, f"payload STRUCT<after: {row}>, after {row}")
                found += [read["payload"]["after"][each], read["after"][each]]
            case "MAXWELL":
                found.append(f.from_json(text, f"data {row}")["data"][each])
            case _:
                return None
    return f.coalesce(*found)


def upsert_changes(records: StepsT, key: EventKey) -> StepsT:
    """UPSERT: the value is the row, no value deletes it. The key's columns come from the record's key."""
    keys = _nothing() if key.is_record_key else _record_keys(f.col("key").cast("string"), key.columns)
    read = records.withColumn(_EVENT, f.from_json(f.col("value").cast("string"), _FIELDS)).withColumn(_KEYS, keys)
    changes = (
        f.when(f.col("key").isNull(), _failed(NO_KEY))
        .when(_has_no_value(), f.array(_change(DELETE, _nothing(), f.col(_KEYS))))
        .when(f.col(_EVENT).isNull(), _failed("the value is not a JSON object"))
        .otherwise(f.array(_change(UPSERT, f.col(_EVENT), f.col(_KEYS))))
    )
    if not key.is_record_key:
        is_other = f.col("key").isNotNull() & f.col(_KEYS).isNull()
        changes = f.when(is_other, _failed(f"the key is not JSON of {_listed(key.columns)}")).otherwise(changes)
    return read.withColumn(CHANGES, changes)


def debezium_changes(records: StepsT, key: EventKey, *, ignore_key: bool, has_types: bool) -> StepsT:
    """DEBEZIUM: the envelope, by itself or as ``payload``; a record without a value deletes its key.

    ``has_types``: what a record's schema says of its fields is wanted too, as ``_rw_types``.
    """
    envelope = f"op: STRING, before: {_FIELDS}, after: {_FIELDS}"
    types = f"schema STRUCT<fields: ARRAY<STRUCT<{_TYPE}, fields: ARRAY<STRUCT<{_TYPE}>>>>>, " if has_types else ""
    schema = f"{types}payload STRUCT<{envelope}>, op STRING, before {_FIELDS}, after {_FIELDS}, {_CORRUPT} STRING"
    read = _read(records, schema)
    event = f.col(_EVENT)
    op, before, after = (
        f.when(event["payload"].isNotNull(), event["payload"][part]).otherwise(event[part])
        for part in ("op", "before", "after")
    )
    read = read.withColumn("_rw_debezium", f.struct(op.alias("op"), before.alias("before"), after.alias("after")))
    op, before, after = (f.col("_rw_debezium")[part] for part in ("op", "before", "after"))
    told = f.when(op == "u", f.lit("after is missing for updating event")).otherwise(
        f.lit("after is missing for creating event")
    )
    is_row = op.isin("c", "r", "u")
    changes = (
        f.when(_has_no_value(), _tombstone(key, ignore_key=ignore_key))
        .when(_is_corrupt(), _failed("the value is not JSON of a Debezium event"))
        .when(op.isNull(), _failed("op field not found in debezium json"))
        .when(is_row & after.isNull(), _failed(told))
        .when(is_row, _moved(after, f.when(op == "u", before), key.columns))
        .when((op == "d") & before.isNull(), _failed("before is missing for delete event"))
        .when(op == "d", f.array(_change(DELETE, before)))
        .otherwise(_failed(f.concat(f.lit("unknown debezium op: "), op)))
    )
    if has_types:
        read = read.withColumn(TYPES, _types(event["schema"]["fields"]))
    return read.withColumn(CHANGES, changes)


def _tombstone(key: EventKey, *, ignore_key: bool) -> Column:
    if ignore_key:
        return f.array().cast(_NONE)
    text = f.col("key").cast("string")
    wrapped = f.from_json(text, f"payload {_FIELDS}").getField("payload")
    keys = _holding(f.coalesce(wrapped, f.from_json(text, _FIELDS)), key.columns)
    return (
        f.when(text.isNull(), _failed(NO_VALUE))
        .when(keys.isNull(), _failed(f"the record has no value, and its key is not JSON of {_listed(key.columns)}"))
        .otherwise(f.array(_change(DELETE, keys, keys)))
    )


def _types(fields: Column) -> Column:
    """What ``schema`` says of the columns: it has them under ``before`` and ``after``."""
    row = f.get(f.filter(fields, lambda part: part["field"].isin("after", "before")), f.lit(0))["fields"]
    named = f.filter(row, lambda part: part["field"].isNotNull())
    distinct = f.filter(
        named, lambda part, at: ~f.exists(f.slice(named, f.lit(1), at), lambda other: other["field"] == part["field"])
    )
    return f.map_from_entries(
        f.transform(
            distinct,
            lambda part: f.struct(
                part["field"],
                f.struct(
                    part["name"].alias("type"), f.try_element_at(part["parameters"], f.lit("scale")).alias("scale")
                ),
            ),
        )
    )


def maxwell_changes(records: StepsT, key: EventKey) -> StepsT:
    """MAXWELL: ``data`` is the row, ``old`` what an update changed. A bootstrap's rows are inserts."""
    read = _read(records, f"type STRING, data {_FIELDS}, old {_FIELDS}, {_CORRUPT} STRING")
    event = f.col(_EVENT)
    kind, data = event["type"], event["data"]
    changes = (
        f.when(f.col("value").isNull(), _failed(NO_VALUE))
        .when(_is_corrupt(), _failed("the value is not JSON of a Maxwell event"))
        .when(kind.isNull(), _failed("type field not found in maxwell json"))
        .when(kind.isin("bootstrap-start", "bootstrap-complete"), f.array().cast(_NONE))
        .when(
            kind.isin("insert", "update", "delete", "bootstrap-insert") & data.isNull(),
            _failed(f.concat(f.lit("data is missing for "), kind, f.lit(" event"))),
        )
        .when(kind.isin("insert", "bootstrap-insert"), f.array(_change(UPSERT, data)))
        .when(kind == "update", _moved(data, event["old"], key.columns))
        .when(kind == "delete", f.array(_change(DELETE, data)))
        .otherwise(_failed(f.concat(f.lit("unknown maxwell type: "), kind)))
    )
    return read.withColumn(CHANGES, changes)


def canal_changes(records: StepsT, key: EventKey) -> StepsT:
    """CANAL: ``data`` are the rows of one statement, ``old`` what an update changed of each."""
    schema = f"isDdl BOOLEAN, type STRING, data ARRAY<{_FIELDS}>, old ARRAY<{_FIELDS}>, {_CORRUPT} STRING"
    read = _read(records, schema)
    event = f.col(_EVENT)
    kind, data, old = event["type"], event["data"], event["old"]
    updated = f.flatten(f.transform(data, lambda row, at: _moved(row, f.get(old, at), key.columns)))
    changes = (
        f.when(f.col("value").isNull(), _failed(NO_VALUE))
        .when(_is_corrupt(), _failed("the value is not JSON of a Canal message"))
        .when(event["isDdl"].isNull(), _failed("field `isDdl` not found in canal json"))
        .when(
            event["isDdl"],
            _failed(
                f.concat_ws(
                    "",
                    f.lit("received a DDL message ("),
                    kind,
                    f.lit("), please set `canal.instance.filter.query.ddl` to true"),
                )
            ),
        )
        .when(kind.isNull() | ~kind.isin("INSERT", "UPDATE", "DELETE"), _failed("op field not found in canal json"))
        .when(data.isNull(), _failed("field `data` is missing for creating event"))
        .when(f.exists(data, lambda row: row.isNull()), _failed("field `data` holds what is no row"))
        .when(kind == "INSERT", f.transform(data, lambda row: _change(UPSERT, row)))
        .when(kind == "DELETE", f.transform(data, lambda row: _change(DELETE, row)))
        # Rows that take each other's keys: the last change of a key counts.
        .when(f.size(updated) > f.size(data), _last_of_each_key(updated, key.columns))
        .otherwise(updated)
    )
    return read.withColumn(CHANGES, changes)


def _read(records: StepsT, schema: str) -> StepsT:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return records.withColumn(_EVENT, f.from_json(f.col("value").cast("string"), schema, options))


def _has_no_value() -> Column:
    return f.col("value").isNull() | (f.octet_length("value") == 0)


def _nothing() -> Column:
    return f.lit(None).cast(_FIELDS)


def _is_corrupt() -> Column:
    return f.col(_EVENT).isNull() | f.col(_EVENT)[_CORRUPT].isNotNull()


def _change(op: int, fields: Column, keys: Column | None = None) -> Column:
    made = f.struct(
        f.lit(op).alias("op"),
        f.lit(None).cast("string").alias("error"),
        fields.alias("fields"),
        (_nothing() if keys is None else keys).alias("keys"),
    )
    return made.cast(_CHANGE)


def _failed(message: Column | str) -> Column:
    said = f.lit(message) if isinstance(message, str) else message
    nothing = _nothing()
    return f.array(
        f.struct(
            f.lit(None).cast("int").alias("op"), said.alias("error"), nothing.alias("fields"), nothing.alias("keys")
        ).cast(_CHANGE)
    )


def _moved(row: Column, old: Column, keys: Sequence[str]) -> Column:
    """A row that is written; where an update gave it another key, the row of the old key goes first."""
    old_keys = [f.coalesce(field_of(old, name), field_of(row, name)) for name in keys]
    is_other = f.lit(False)
    for name, old_key in zip(keys, old_keys, strict=True):
        is_other = is_other | (old_key != field_of(row, name))
    gone = _mapped(keys, old_keys)
    return f.when(
        old.isNotNull() & f.coalesce(is_other, f.lit(False)),
        f.array(_change(DELETE, gone, gone), _change(UPSERT, row)),
    ).otherwise(f.array(_change(UPSERT, row)))


def _last_of_each_key(changes: Column, keys: Sequence[str]) -> Column:
    def key(change: Column) -> Column:
        return f.array(*(f.coalesce(field_of(change["keys"], name), field_of(change["fields"], name)) for name in keys))

    def is_last(change: Column, at: Column) -> Column:
        later = f.slice(changes, at + f.lit(2), f.size(changes))
        is_none = f.exists(key(change), lambda part: part.isNull())
        return is_none | ~f.exists(later, lambda other: key(other) == key(change))

    return f.filter(changes, is_last)


def _record_keys(text: Column, keys: Sequence[str]) -> Column:
    """The key's columns out of a record's key: a JSON object of them, or the one column's value by itself."""
    told = _holding(f.from_json(text, _FIELDS), keys)
    if len(keys) > 1:
        return told
    alone = f.from_json(f.concat(f.lit("["), text, f.lit("]")), "ARRAY<STRING>")
    is_alone = (f.size(alone) == 1) & ~f.ltrim(text).rlike(r"^[\[{]")
    return f.when(is_alone, _mapped(keys, [f.get(alone, f.lit(0))])).otherwise(told)


def _holding(fields: Column, keys: Sequence[str]) -> Column:
    """The fields, where all of the key's columns are among them."""
    found = f.lit(True)
    for name in keys:
        found = found & field_of(fields, name).isNotNull()
    return f.when(found, fields)


def _mapped(names: Sequence[str], values: Sequence[Column]) -> Column:
    return f.map_from_arrays(f.array(*(f.lit(name) for name in names)), f.array(*values))


def _listed(names: Sequence[str]) -> str:
    return f"the primary key ({', '.join(names)})"
