"""Finds the values that a record of Debezium omits because they did not change. This module uses only Spark
expressions.

Debezium writes a placeholder for a value that the database did not send. Examples are a value that PostgreSQL stores
out of line (TOAST), and a large object in Oracle. The form of the placeholder depends on the type of the column:

- a string
- the string's bytes as base64 or as hexadecimal digits
- an array whose only item is the string or its base64
- an array of the string's bytes as numbers
- an array whose only item is the UUID that Java computes from the bytes
- a map from the string to itself
- this map as JSON in a string

Debezium writes the placeholder only in place of a whole value. Therefore, an array or a map that contains the
placeholder among other elements is an ordinary value. This module records only the path of an unchanged value. Later,
``rw_sql/runtime/views/unchanged.py`` copies the value from the existing row.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.model.definitions import unchanged_path
from rw_sql.runtime.decoding.json_text import field_of, last_of_each, let, part, without_marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.syntax.statements import ColumnDefinition, DataType, StructField

MOVED = ""
"""The path that marks a row whose key changed. The unchanged values of this row must be copied from the row with the
old key."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Debezium's placeholder for an unchanged value, in all its forms. ``text`` is the placeholder as a string."""

    text: str

    @property
    def plain(self) -> tuple[str, ...]:
        """The placeholder's forms in a column that is neither an array nor a map."""
        raw = self.text.encode()
        return (self.text, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex())

    @property
    def map(self) -> str:
        """The JSON of the map from the placeholder's text to itself. Debezium uses this form for a map. If its option
        ``hstore.handling.mode`` is ``json``, Debezium also uses this form for a string."""
        return _dump({self.text: self.text})

    @property
    def uuid(self) -> str:
        """The UUID that Java computes from the bytes of the placeholder (``UUID.nameUUIDFromBytes``)."""
        digest = bytearray(hashlib.md5(self.text.encode(), usedforsecurity=False).digest())
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        return str(uuid.UUID(bytes=bytes(digest)))

    @property
    def forms(self) -> tuple[str, ...]:
        """All forms of the placeholder, as the text of a JSON value."""
        raw = self.text.encode()
        lists = [[self.text], [self.plain[1]], [byte - 256 if byte > 127 else byte for byte in raw]]
        lists.append([self.uuid])
        return tuple(dict.fromkeys((*self.plain, *(_dump(value) for value in lists), self.map)))

    def is_in(self, text: Column) -> Column:
        """True if the text of a value is the placeholder in one of its forms."""
        return without_marks(text).isin(*self.forms)

    def is_part_of(self, text: Column) -> Column:
        """True if the JSON text of an array, struct or map contains the placeholder in one of its forms."""
        found, text = f.lit(False), without_marks(text)
        # Inside a struct, each form is a quoted string, an array or a map.
        quoted = dict.fromkeys(_dump(plain) for plain in (*self.plain, self.map))
        for form in (*quoted, *(form for form in self.forms if form.startswith(("[", "{")))):
            found = found | text.contains(form)
        return found


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def told(column: ColumnDefinition, text: Column, placeholder: Placeholder) -> tuple[Column, Column]:
    """Returns the text of a column without the placeholder, and an array with one item per path in the column. The item
    is the path if the value at the path is unchanged; otherwise, the item is NULL."""
    known = text
    if column.data_type.name == "STRUCT":
        known = f.when(placeholder.is_part_of(text), _without(text, column.data_type, placeholder)).otherwise(text)
    known = f.when(~f.coalesce(placeholder.is_in(text), f.lit(False)), known)
    return known, _paths((column.name,), text, column.data_type, placeholder)


def _paths(path: tuple[str, ...], text: Column, data_type: DataType, placeholder: Placeholder) -> Column:
    whole = path_of(path, placeholder.is_in(text))
    if data_type.name != "STRUCT":
        return whole

    def of_fields(read: Column) -> Column:
        found = (
            _paths((*path, field.name), read[f"_{at}"], field.data_type, placeholder)
            for at, field in enumerate(data_type.fields)
        )
        return f.when(read.isNotNull(), f.concat(*found))

    inner = f.when(placeholder.is_part_of(text), let(_parts(text, data_type, placeholder), of_fields))
    return f.coalesce(inner, whole)


def path_of(path: tuple[str, ...], is_unchanged: Column) -> Column:
    """Returns an array with one item. The item is the path if the value at the path is unchanged; otherwise, the item
    is NULL."""
    return f.array(f.when(is_unchanged, f.lit(unchanged_path(path))))


def _parts(text: Column, data_type: DataType, placeholder: Placeholder) -> Column:
    """Returns the fields of a struct as text, under the names ``_0``, ``_1`` and so on. Returns NULL if the text of the
    struct does not contain the placeholder, or is not a JSON object."""
    names = [field.name for field in data_type.fields]

    def found(fields: Column) -> Column:
        parts = f.struct(*(field_of(fields, name, names).alias(f"_{at}") for at, name in enumerate(names)))
        return f.when(fields.isNotNull(), parts)

    fields = let(part(text, "MAP<STRING, STRING>"), last_of_each)
    return f.when(placeholder.is_part_of(text), let(fields, found))


def _without(text: Column, data_type: DataType, placeholder: Placeholder) -> Column:
    """Returns the text of a struct without the fields whose value is the placeholder. A text that does not contain the
    placeholder is returned unchanged.

    Placeholders inside the maps and arrays of the struct are kept.
    """

    def known(field: StructField, part: Column) -> Column:
        bare = part
        if field.data_type.name == "STRUCT":
            bare = f.when(placeholder.is_part_of(part), _without(part, field.data_type, placeholder)).otherwise(part)
        return f.when(~f.coalesce(placeholder.is_in(part), f.lit(False)), bare).alias(field.name)

    def rebuilt(read: Column) -> Column:
        parts = (known(field, read[f"_{at}"]) for at, field in enumerate(data_type.fields))
        return f.when(read.isNotNull(), f.to_json(f.struct(*parts))).otherwise(text)

    return let(_parts(text, data_type, placeholder), rebuilt)


def unchanged(paths: Sequence[Column], is_moved: Column) -> Column:
    """Returns the paths in the arrays ``paths`` without the NULLs; NULL if there are no paths. If ``is_moved`` is true,
    which means that the row's key changed, the result also contains MOVED."""
    found = f.array_compact(f.concat(f.array(f.lit(None).cast("string")), *paths))
    moved = f.array_compact(f.array(f.when(is_moved, f.lit(MOVED))))
    return f.when(f.size(found) > 0, f.concat(found, moved))
