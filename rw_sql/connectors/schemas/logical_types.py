"""Reads the logical types of Avro schemas. Avro ignores a logical type that it does not know, that the underlying
type cannot have, or whose attributes are invalid. The value then has the underlying type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "date": ("int",),
    "time-millis": ("int",),
    **dict.fromkeys(("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"), ("long",)),
    **dict.fromkeys((f"local-timestamp-{unit}" for unit in ("millis", "micros", "nanos")), ("long",)),
}
"""Maps each of Avro's logical types to the underlying types that can have it."""

_SIZES: Mapping[str, int] = {"uuid": 16, "duration": 12}
"""The logical types that a ``fixed`` type can have only if it has a certain size, each with this size in bytes."""


def logical_of(schema: Any) -> str | None:
    """The logical type of a schema; None if it has no logical type, or if Avro ignores its logical type."""
    if not isinstance(schema, dict):
        return None
    name, kind = schema.get("logicalType"), schema.get("type")
    if not isinstance(name, str) or kind not in _TYPES.get(name, ()):
        return None
    if name == "decimal":
        return name if _is_decimal(schema) else None
    return name if kind != "fixed" or schema.get("size") == _SIZES[name] else None


def decimal_of(schema: Any) -> tuple[int, int] | None:
    """Returns the precision and the scale of a decimal; None for any other schema."""
    return (schema["precision"], schema.get("scale", 0)) if logical_of(schema) == "decimal" else None


def most_digits(size: int) -> int:
    """The greatest precision that a decimal of ``size`` bytes can have."""
    return int(math.log10(2) * (8 * size - 1))


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return False
    return schema["type"] == "bytes" or precision <= most_digits(schema.get("size", 0))
