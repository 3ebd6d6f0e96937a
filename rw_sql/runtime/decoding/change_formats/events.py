"""Extracts the changes from records. There is one function for each change format. This module uses only Spark
expressions, so no record passes through Python.

The changes of a record form an array of ``struct<op, error, fields, keys>``. ``fields`` maps the column names of an
upstream row to the values as text. Numbers in this text are marked, or have their original spelling
(:mod:`rw_sql.runtime.decoding.json_text`). If ``keys`` is not NULL, the values of the key's columns come from ``keys``
instead of ``fields``. If the record or a part of it is invalid, ``error`` is the reason; otherwise, ``error`` is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.runtime.decoding.json_text import (
    NO_VALUE,
    OPTIONS,
    SECRET,
    all_members,
    characters,
    exact,
    field_of,
    has_twins,
    is_text,
    is_whole,
    last_of_each,
    let,
    members,
    once,
    part,
    with_end,
    with_marks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.support.deferred_columns import StepsT

UPSERT, DELETE = 1, -1

CHANGES = "_rw_changes"
TYPES = "_rw_types"
"""The column that maps the fields of a record to their types according to the record's embedded schema: map<name,
struct<type, scale>>. For an array, the map contains the type of the array's items."""

NO_KEY = "the record has no key"

_EVENT, _ROW = "_rw_event", "_rw_event_row"
_KEYS = "_rw_keys"
_VALUE_TEXT, _KEY_TEXT, _KEY_MEMBERS = "_rw_value_text", "_rw_key_text", "_rw_key_members"
_FIELDS = "MAP<STRING, STRING>"
_NAMED = "name: STRING, parameters: MAP<STRING, STRING>"
_TYPE = f"field: STRING, {_NAMED}, items: STRUCT<{_NAMED}>"
_CHANGE = f"STRUCT<op: INT, error: STRING, fields: {_FIELDS}, keys: {_FIELDS}>"
_NONE = f"ARRAY<{_CHANGE}>"
# The quantifier is possessive, as in json_text, because otherwise a long key would overflow the stack.
_TEXT_ALONE = r'^\s*"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*\z'
_VALUE_ALONE = r'^\s*("[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?|true|false)\s*\z'


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKey:
    """A table's primary key. ``columns`` are the key's columns. ``is_record_key`` is True if the only column contains
    the record's key itself (INCLUDE key).

    ``encode`` is the encoding of the records' keys. ``is_text`` is True if the key has a single column whose values are
    strings in JSON.
    """

    columns: tuple[str, ...]
    is_record_key: bool = False
    encode: str = "JSON"
    is_text: bool = False


def upsert_changes(records: StepsT, key: EventKey) -> StepsT:
    """Extracts the changes of FORMAT UPSERT. The record's value is the row. A record without a value deletes the row
    that has the record's key.

    The values of the primary key's columns come from the record's key.
    """
    read = _exact(records, "value", _VALUE_TEXT)
    read = read.withColumn(_EVENT, once(all_members(f.col(_VALUE_TEXT))))
    keys = no_fields()
    if not key.is_record_key:
        read = _exact(read, "key", _KEY_TEXT)
        keys = once(_record_keys(key))
    read = read.withColumn(_KEYS, keys)
    changes = (
        f.when(f.col("key").isNull(), _failed(NO_KEY))
        .when(_has_no_value(), f.array(change_of(DELETE, no_fields(), f.col(_KEYS))))
        .when(f.col(_EVENT).isNull(), _failed("the value is not a JSON object"))
        .otherwise(f.array(change_of(UPSERT, f.col(_EVENT), f.col(_KEYS))))
    )
    if not key.is_record_key:
        is_other = f.col("key").isNotNull() & f.col(_KEYS).isNull()
        changes = f.when(is_other, _failed(_no_key(key))).otherwise(changes)
    return read.withColumn(CHANGES, changes)


def debezium_changes(records: StepsT, key: EventKey, *, ignore_key: bool, has_types: bool) -> StepsT:
    """Extracts the changes of FORMAT DEBEZIUM. The record's value is the envelope, either at the top level or in
    ``payload``.

    A record without a value deletes the row that has the record's key. If ``ignore_key`` is True, this does not apply:
    the keys of records are not read, and a record without a value contains no change.

    If ``has_types`` is True, the result also has the column TYPES with the types in the records' embedded schemas.
    """
    envelope = f"op: STRING, before: {_FIELDS}, after: {_FIELDS}"
    types = f"schema STRUCT<fields: ARRAY<STRUCT<{_TYPE}, fields: ARRAY<STRUCT<{_TYPE}>>>>>, " if has_types else ""
    schema = f"{types}payload STRUCT<{envelope}>, op STRING, before {_FIELDS}, after {_FIELDS}"
    read = _read(records, schema)
    if not ignore_key:
        read = _exact(read, "key", _KEY_TEXT)
        read = read.withColumn(_KEY_MEMBERS, once(f.when(_has_no_value(), all_members(f.col(_KEY_TEXT)))))
    event = f.col(_EVENT)
    told_op, told_before, told_after = (
        f.when(event["payload"].isNotNull(), event["payload"][part]).otherwise(event[part])
        for part in ("op", "before", "after")
    )
    row = f.struct(
        told_op.alias("op"), last_of_each(told_before).alias("before"), last_of_each(told_after).alias("after")
    )
    read = read.withColumn(_ROW, once(row))
    op, before, after = (f.col(_ROW)[part] for part in ("op", "before", "after"))
    told = f.when(op == "u", f.lit("after is missing for updating event")).otherwise(
        f.lit("after is missing for creating event")
    )
    is_row = op.isin("c", "r", "u")
    changes = (
        f.when(_has_no_value(), _tombstone(key, ignore_key=ignore_key))
        .when(_is_corrupt(), _failed("the value is not a Debezium event in JSON"))
        .when(op.isNull(), _failed("op field not found in debezium json"))
        .when(is_row & after.isNull(), _failed(told))
        .when(is_row, _moved(after, f.when(op == "u", before), key.columns))
        .when((op == "d") & before.isNull(), _failed("before is missing for delete event"))
        .when(op == "d", f.array(change_of(DELETE, before)))
        .otherwise(_failed(f.concat(f.lit("unknown debezium op: "), op)))
    )
    if has_types:
        told_types = _types(event["schema"]["fields"])
        if not ignore_key:
            told_types = f.when(_has_no_value(), _key_types()).otherwise(told_types)
        read = read.withColumn(TYPES, told_types)
    return read.withColumn(CHANGES, changes)


def _tombstone(key: EventKey, *, ignore_key: bool) -> Column:
    """Returns the changes of a record without a value (a tombstone). Debezium writes such a record after a delete
    event.

    The result is an empty array if ``ignore_key`` is True, or if the key does not begin like a JSON object. The result
    is an error if the key is missing, or begins like a JSON object but does not contain the primary key.
    """
    if ignore_key:
        return f.array().cast(_NONE)
    told = f.col(_KEY_MEMBERS)
    keys = let(
        part(f.try_element_at(told, f.lit("payload")), _FIELDS),
        lambda wrapped: _holding(f.coalesce(last_of_each(wrapped), told), key.columns),
    )
    # A key that begins like an object but is not an object is an error. For any other key, the delete event has already
    # deleted the row.
    is_other = told.isNull() & ~characters(f.col("key")).rlike(r"^\s*[{]")
    return (
        f.when(f.col("key").isNull(), _failed(NO_VALUE))
        .when(is_other, f.array().cast(_NONE))
        .when(keys.isNull(), _failed(f"the record has no value, and its key is not JSON with {_listed(key.columns)}"))
        .otherwise(f.array(change_of(DELETE, keys, keys)))
    )


def _key_types() -> Column:
    """Returns the types of the columns in the ``schema`` of a record's key. In a record without a value, only the key
    contains a schema."""
    schema = f.try_element_at(f.col(_KEY_MEMBERS), f.lit("schema"))
    return let(part(schema, f"STRUCT<fields: ARRAY<STRUCT<{_TYPE}>>>"), lambda read: _types_of(read["fields"]))


def _types(fields: Column) -> Column:
    """Returns the types of the columns in the embedded schema of a record's value. ``fields`` are the top-level fields
    of this schema. The columns are below ``before`` and ``after``."""
    return _types_of(f.get(f.filter(fields, lambda part: part["field"].isin("after", "before")), f.lit(0))["fields"])


def _types_of(row: Column) -> Column:
    named = f.filter(row, lambda part: part["field"].isNotNull())
    distinct = f.filter(
        named, lambda part, at: ~f.exists(f.slice(named, f.lit(1), at), lambda other: other["field"] == part["field"])
    )
    return f.map_from_entries(
        f.transform(
            distinct,
            lambda part: f.struct(
                part["field"],
                # The type of an array has no name, but the type of its items has a name.
                f.struct(
                    f.coalesce(part["name"], part["items"]["name"]).alias("type"),
                    f.coalesce(_scale_in(part), _scale_in(part["items"])).alias("scale"),
                ),
            ),
        )
    )


def _scale_in(part: Column) -> Column:
    return f.try_element_at(part["parameters"], f.lit("scale"))


def maxwell_changes(records: StepsT, key: EventKey) -> StepsT:
    """Extracts the changes of FORMAT MAXWELL. In a record, ``data`` is the row, and ``old`` contains the values that an
    update replaced. The rows that Maxwell writes in a bootstrap count as inserts."""
    read = _read(records, f"type STRING, data {_FIELDS}, old {_FIELDS}")
    event = f.col(_EVENT)
    rows = f.struct(last_of_each(event["data"]).alias("data"), last_of_each(event["old"]).alias("old"))
    read = read.withColumn(_ROW, once(rows))
    kind, data, old = event["type"], f.col(_ROW)["data"], f.col(_ROW)["old"]
    changes = (
        f.when(f.col("value").isNull(), _failed(NO_VALUE))
        .when(_is_corrupt(), _failed("the value is not a Maxwell event in JSON"))
        .when(kind.isNull(), _failed("type field not found in maxwell json"))
        .when(kind.isin("bootstrap-start", "bootstrap-complete"), f.array().cast(_NONE))
        .when(
            kind.isin("insert", "update", "delete", "bootstrap-insert") & data.isNull(),
            _failed(f.concat(f.lit("data is missing for "), kind, f.lit(" event"))),
        )
        .when(kind.isin("insert", "bootstrap-insert"), f.array(change_of(UPSERT, data)))
        .when(kind == "update", _moved(data, old, key.columns))
        .when(kind == "delete", f.array(change_of(DELETE, data)))
        .otherwise(_failed(f.concat(f.lit("unknown maxwell type: "), kind)))
    )
    return read.withColumn(CHANGES, changes)


def canal_changes(records: StepsT, key: EventKey) -> StepsT:
    """Extracts the changes of FORMAT CANAL. In a record, ``data`` contains the rows of one statement of the database.
    For each row, ``old`` contains the values that an update replaced.

    One statement of the database may change a row several times, and may give a row the former key of another row.
    Therefore, the result contains only the last change in the record for each key.
    """
    read = _read(records, f"isDdl BOOLEAN, type STRING, data ARRAY<{_FIELDS}>, old ARRAY<{_FIELDS}>")
    event = f.col(_EVENT)
    rows = f.struct(*(f.transform(event[part], last_of_each).alias(part) for part in ("data", "old")))
    read = read.withColumn(_ROW, once(rows))
    kind, data, old = event["type"], f.col(_ROW)["data"], f.col(_ROW)["old"]
    changed = (
        f.when(kind == "INSERT", f.transform(data, lambda row: change_of(UPSERT, row)))
        .when(kind == "DELETE", f.transform(data, lambda row: change_of(DELETE, row)))
        .otherwise(f.flatten(f.transform(data, lambda row, at: _moved(row, f.get(old, at), key.columns))))
    )
    changes = (
        f.when(f.col("value").isNull(), _failed(NO_VALUE))
        .when(_is_corrupt(), _failed("the value is not a Canal message in JSON"))
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
        .when(f.exists(data, lambda row: row.isNull()), _failed("field `data` contains a value that is not a row"))
        .otherwise(_last_of_each_key(changed, key.columns))
    )
    return read.withColumn(CHANGES, changes)


def _read(records: StepsT, schema: str) -> StepsT:
    records = _exact(records, "value", _VALUE_TEXT)
    return records.withColumn(_EVENT, once(members(f.col(_VALUE_TEXT), schema)))


def _exact(records: StepsT, name: str, into: str) -> StepsT:
    """Adds the column ``into`` to the records. The new column contains the bytes of the column ``name`` as text in a
    form that can be parsed; NULL if the bytes are not UTF-8, or if the text contains an invalid escape."""
    return records.withColumn(into, once(f.when(is_text(f.col(name)), exact(with_end(f.col(name))))))


def _has_no_value() -> Column:
    return f.col("value").isNull() | (f.octet_length("value") == 0)


def no_fields() -> Column:
    """Returns a NULL of the type of ``fields`` and ``keys``."""
    return f.lit(None).cast(_FIELDS)


def _is_corrupt() -> Column:
    return ~is_whole(f.col(_EVENT))


def change_of(op: int, fields: Column, keys: Column | None = None) -> Column:
    """Returns one item for the array in the column CHANGES. If ``keys`` is None, the item's ``keys`` are NULL."""
    made = f.struct(
        f.lit(op).alias("op"),
        f.lit(None).cast("string").alias("error"),
        fields.alias("fields"),
        (no_fields() if keys is None else keys).alias("keys"),
    )
    return made.cast(_CHANGE)


def _failed(message: Column | str) -> Column:
    said = f.lit(message) if isinstance(message, str) else message
    nothing = no_fields()
    return f.array(
        f.struct(
            f.lit(None).cast("int").alias("op"), said.alias("error"), nothing.alias("fields"), nothing.alias("keys")
        ).cast(_CHANGE)
    )


def _moved(row: Column, old: Column, keys: Sequence[str]) -> Column:
    """Returns the changes for an inserted or updated row. ``old`` contains the values that an update replaced. If the
    update changed the row's key, the first change deletes the row with the old key."""
    old_keys = [f.coalesce(field_of(old, name, keys), field_of(row, name, keys)) for name in keys]
    is_other = f.lit(False)
    for name, old_key in zip(keys, old_keys, strict=True):
        is_other = is_other | (old_key != field_of(row, name, keys))
    gone = _mapped(keys, old_keys)
    return f.when(
        old.isNotNull() & f.coalesce(is_other, f.lit(False)),
        f.array(change_of(DELETE, gone, gone), change_of(UPSERT, row)),
    ).otherwise(f.array(change_of(UPSERT, row)))


def _last_of_each_key(changes: Column, keys: Sequence[str]) -> Column:
    """Returns, of the changes of a record, only the last change to each key. Changes that lack a column of the key are
    kept too, because they become errors."""

    def key(change: Column) -> Column:
        parts = [
            f.coalesce(field_of(change["keys"], name, keys), field_of(change["fields"], name, keys)) for name in keys
        ]
        if len(parts) == 1:
            return parts[0]
        is_whole_key = f.forall(f.array(*parts), lambda part: part.isNotNull())
        # The parts of the key become one string, because Spark finds equal strings by their hashes, but compares each
        # array with all other arrays.
        return f.when(is_whole_key, f.to_json(f.array(*parts)))

    def last(known: Column, changes: Column) -> Column:
        # The last change of a key is the first change in the reverse order.
        found = let(
            f.reverse(known),
            lambda backwards: f.filter(
                changes,
                lambda _, at: f.coalesce(
                    f.array_position(backwards, f.get(known, at)) == f.size(known) - at, f.lit(True)
                ),
            ),
        )
        return f.when(has_twins(known), found).otherwise(changes)

    return let(
        changes,
        lambda found: f.when(f.size(found) < 2, found).otherwise(
            let(f.transform(found, key), lambda known: last(known, found))
        ),
    )


def _record_keys(key: EventKey) -> Column:
    """Returns a map with the values of the primary key's columns, read from a record's key. The result is NULL if the
    record's key is invalid or lacks one of the columns.

    With TEXT and BYTES, the record's key is the value of the single column. With JSON, the record's key is an object
    with the columns or, for a single column, the column's value as JSON. If the values of this column are strings, the
    value must be quoted, because unquoted text would be valid JSON only by chance (``12``, ``true``).
    """
    names = key.columns
    if key.encode == "BYTES":
        return _mapped(names, [f.base64("key")])
    text = characters(f.col("key"))
    if key.encode == "TEXT":
        return f.when(f.is_valid_utf8(text), _mapped(names, [text]))
    told = let(all_members(f.col(_KEY_TEXT)), lambda fields: _holding(fields, names))
    if len(names) > 1:
        return told
    # The extra last element, which no key can contain, shows that the key is a single value.
    several = f.from_json(with_marks(f.concat(f.lit("["), text, f.lit(f',"{SECRET}"]'))), "ARRAY<STRING>", OPTIONS)
    alone = let(
        several, lambda items: f.when((f.size(items) == 2) & (f.get(items, f.lit(1)) == SECRET), f.get(items, f.lit(0)))
    )
    is_alone = is_text(f.col("key")) & text.rlike(_TEXT_ALONE if key.is_text else _VALUE_ALONE)
    return f.when(is_alone, _mapped(names, [alone])).otherwise(told)


def _no_key(key: EventKey) -> str:
    if key.encode != "JSON":
        return f"the key is not {'text' if key.encode == 'TEXT' else 'bytes'}"
    more = '; KEY ENCODE TEXT reads plain text, and a key that is JSON text is quoted: "…"' if key.is_text else ""
    return f"the key is not JSON with {_listed(key.columns)}{more}"


def _holding(fields: Column, keys: Sequence[str]) -> Column:
    """Returns ``fields``; NULL if a column of the key is missing in them."""
    found = f.lit(True)
    for name in keys:
        found = found & field_of(fields, name, keys).isNotNull()
    return f.when(found, fields)


def _mapped(names: Sequence[str], values: Sequence[Column]) -> Column:
    return f.map_from_arrays(f.array(*(f.lit(name) for name in names)), f.array(*values))


def _listed(names: Sequence[str]) -> str:
    return f"the primary key ({', '.join(names)})"
