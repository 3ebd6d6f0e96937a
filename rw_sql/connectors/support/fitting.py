"""Converts values from Parquet files and tables to the types of a source's columns. A value is converted either exactly
or not at all.

Arrow's casts alone do not achieve this. Arrow matches the fields of structs only if their names are exactly equal. Some
casts change values: they round floats to decimals, drop the time of day when a timestamp becomes a date, convert every
number except 0 to true, and convert a string with too large a number to infinity. Some casts accept too much:
hexadecimal digits, times without minutes, years after 9999, and strings that are not UTF-8. Other casts accept too
little: Arrow refuses a number with spaces around it or a plus sign before it, refuses to convert a decimal to a
boolean, and refuses to convert an integer to a decimal type that cannot hold every value of the integer's type.

This module imports no other module of the package, because Spark's workers receive this module by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Fitted = tuple[pa.Array, NDArray[np.bool_]]
    """The converted array, and a mask that is true for each given value that does not fit the wanted type. These
    values are NULL in the array."""

_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first day of the year 1 and the last day of the year 9999, in days since 1970. ``_FIRST_MICROS`` and
``_LAST_MICROS`` are the first and the last microsecond of this period, in microseconds since 1970."""

_FIRST_GREGORIAN_DAY = -141_427
_FIRST_GREGORIAN_MICROS = (_FIRST_GREGORIAN_DAY + 1) * 86_400_000_000
"""``_FIRST_GREGORIAN_DAY`` is the first day of the Gregorian calendar, 15 October 1582. ``_FIRST_GREGORIAN_MICROS``
is the first microsecond at which this day has begun in all time zones."""

NO_UTF_8 = "the value is not UTF-8"
"""The error for a string that a text column cannot store."""

_DIGITS = 38
_WHOLE = r"^\s*[+-]?[0-9]+\s*\z"
_NUMBER = r"^\s*[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?\s*\z"
_INFINITY = r"^\s*[+-]?(?:Infinity|inf|INF|Inf)\s*\z"
_NAN = r"^\s*(?i:nan)\s*\z"
_MORE_ZEROS = r"([.][0-9]{6})0+"
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]+)?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_MOMENT = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:{_CLOCK})?\z"
_ZONE = r"^.{16}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_UTC = r"(?:Z|[+-]00(?::?00)?)$"


def matches(wanted: Sequence[str], given: Iterable[str]) -> dict[str, str | None]:
    """Maps each wanted name to the matching given name; None if no given name matches. An equal name takes precedence
    over a name that differs only in case.

    Wanted names that differ from each other only in case match only equal names.
    """
    names = list(given)
    folded = {name.lower(): name for name in reversed(names)}
    lower = [name.lower() for name in wanted]
    return {
        name: name if name in names else folded.get(name.lower()) if lower.count(name.lower()) == 1 else None
        for name in wanted
    }


def fitted(given: pa.Array, wanted: pa.DataType, *, is_julian: bool = False) -> Fitted:
    """Converts the values to the wanted type.

    If ``is_julian`` is true, the given dates and times before 15 October 1582 are in the Julian calendar. They do not
    fit.
    """
    given = plain_form(given)
    if given.type == wanted and not _has_checks(wanted):
        return given, np.zeros(len(given), np.bool_)
    if pa.types.is_struct(wanted) and pa.types.is_struct(given.type):
        return _struct(given, wanted, is_julian)
    if pa.types.is_list(wanted) and _is_list(given.type):
        return _list(given, wanted, is_julian)
    if pa.types.is_map(wanted) and pa.types.is_map(given.type):
        return _map(given, wanted, is_julian)
    if pa.types.is_string(wanted) and _is_uuid(given.type):
        return _uuid_texts(given.storage), np.zeros(len(given), np.bool_)
    return _plain(_storage(given), wanted, is_julian)


def plain_form(given: Any) -> Any:
    """The values without the Arrow encodings, such as dictionaries, that a Parquet file can restore. Nested values
    keep their encodings."""
    if pa.types.is_dictionary(given.type):
        return plain_form(given.dictionary_decode())
    return given.cast(pa.string()) if pa.types.is_string_view(given.type) else given


def _has_checks(kind: pa.DataType) -> bool:
    """True if some values of a type do not fit even if this is exactly the wanted type: dates and times outside the
    years 1 to 9999, and strings that are not UTF-8."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind):
        return True
    return any(_has_checks(kind.field(at).type) for at in range(kind.num_fields))


def _is_uuid(kind: Any) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def _uuid_texts(given: Any) -> pa.Array:
    digits = (None if value is None else value.hex() for value in given.to_pylist())
    texts = (x and f"{x[:8]}-{x[8:12]}-{x[12:16]}-{x[16:20]}-{x[20:]}" for x in digits)
    return pa.array(list(texts), pa.string())


def _storage(given: Any) -> Any:
    return plain_form(given.storage) if isinstance(given.type, pa.BaseExtensionType) else given


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)  # Arrow's cast of list views loses the items.
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or is_view)


def _struct(given: Any, wanted: Any, is_julian: bool) -> Fitted:
    names = [field.name for field in given.type]
    parts = given.flatten()  # Unlike field(), flatten() gives NULL wherever the struct is NULL.
    is_misfit = np.zeros(len(given), np.bool_)
    made = []
    for field, name in zip(wanted, matches([field.name for field in wanted], names).values(), strict=True):
        if name is None:
            made.append(pa.nulls(len(given), field.type))
            continue
        part, is_wrong = fitted(parts[names.index(name)], field.type, is_julian=is_julian)
        made.append(part)
        is_misfit |= is_wrong
    return pa.StructArray.from_arrays(made, fields=list(wanted), mask=given.is_null()), is_misfit


def _list(given: Any, wanted: Any, is_julian: bool) -> Fitted:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(given), 0))
    items, is_wrong = fitted(given.flatten(), wanted.value_type, is_julian=is_julian)
    offsets, is_misfit = _rows_of(given, lengths, is_wrong)
    return pa.ListArray.from_arrays(offsets, items).cast(wanted), is_misfit


def _map(given: Any, wanted: Any, is_julian: bool) -> Fitted:
    ends = np.asarray(given.offsets)
    if np.diff(ends)[np.asarray(given.is_null())].any():  # a map that is NULL has items
        given = given.take(pa.array(range(len(given))))
        ends = np.asarray(given.offsets)
    inside = slice(int(ends[0]), int(ends[-1]))
    keys, is_wrong_key = fitted(given.keys[inside], wanted.key_type, is_julian=is_julian)
    items, is_wrong = fitted(given.items[inside], wanted.item_type, is_julian=is_julian)
    # A key that does not fit becomes NULL, which a map cannot contain. In this case, each map is converted separately.
    if is_wrong_key.any():
        if len(given) == 1:
            return pa.nulls(1, wanted), np.ones(1, np.bool_)
        rows = [_map(given.slice(at, 1), wanted, is_julian) for at in range(len(given))]
        return pa.concat_arrays([row for row, _ in rows]), np.concatenate([is_misfit for _, is_misfit in rows])
    offsets, is_misfit = _rows_of(given, np.diff(ends), is_wrong)
    return pa.MapArray.from_arrays(offsets, keys, items).cast(wanted), is_misfit


def _rows_of(given: Any, lengths: NDArray[np.int64], is_wrong: NDArray[np.bool_]) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Returns the offsets of lists with these lengths; the offset of a list that is NULL is NULL. Also returns a
    mask of the lists that contain an item that does not fit."""
    ends = np.concatenate(([0], np.cumsum(lengths)))
    is_null = np.asarray(given.is_null())
    wrongs = np.concatenate(([0], np.cumsum(is_wrong)))[ends]
    offsets = pa.array(ends, pa.int32(), mask=np.concatenate((is_null, [False])))
    return offsets, (np.diff(wrongs) > 0) & ~is_null


def _plain(given: Any, wanted: pa.DataType, is_julian: bool) -> Fitted:
    if pa.types.is_integer(given.type) and not pa.types.is_uint64(given.type) and pa.types.is_timestamp(wanted):
        return _moments(given.cast(pa.int64()), wanted)
    if pa.types.is_decimal(given.type) and pa.types.is_boolean(wanted):
        numbers, is_large = _plain(given, pa.int8(), is_julian)
        made, is_other = _plain(numbers, wanted, is_julian)
        return made, is_large | is_other
    options = pc.CastOptions(wanted, allow_time_truncate=True)
    ready = _ready(_readable(given, wanted) if is_text(given.type) else given, wanted)
    made = _cast(ready, wanted, options)
    is_wrong = pc.or_(_is_changed(given, made), _is_outside(made))
    if is_julian:
        is_wrong = pc.or_(is_wrong, _is_early(given))
    is_misfit = np.asarray(pc.and_(given.is_valid(), pc.or_(made.is_null(), is_wrong)))
    return pc.if_else(pa.array(~is_misfit), made, pa.scalar(None, wanted)), is_misfit


def _readable(text: Any, wanted: pa.DataType) -> Any:
    """Returns the strings in a form that Arrow can parse. A string becomes NULL if it does not denote a value of the
    wanted type, even if Arrow would parse it."""
    if pa.types.is_integer(wanted):
        forms = _WHOLE
    elif pa.types.is_decimal(wanted):
        forms = _NUMBER
    elif pa.types.is_floating(wanted):
        forms = f"{_NUMBER}|{_INFINITY}|{_NAN}"
    elif pa.types.is_timestamp(wanted):
        forms = _MOMENT
    else:
        return text
    plain = pc.replace_substring_regex(pc.ascii_trim_whitespace(text), r"^[+]", "")
    return pc.if_else(pc.match_substring_regex(text, forms), plain, pa.scalar(None, text.type))


def _ready(given: Any, wanted: pa.DataType) -> Any:
    """Converts the values to a type or a text form that Arrow can cast to the wanted type."""
    if pa.types.is_integer(given.type) and pa.types.is_decimal(wanted):
        return given.cast(pa.decimal128(_DIGITS, 0))
    if is_text(given.type) and pa.types.is_timestamp(wanted):
        text = pc.replace_substring_regex(given, _MORE_ZEROS, r"\1")
        is_zoned = pc.match_substring_regex(text, _ZONE)
        if wanted.tz is None:
            return pc.if_else(is_zoned, pc.replace_substring_regex(text, _UTC, ""), text)
        zone = pc.if_else(is_zoned, "", pc.if_else(pc.equal(pc.utf8_length(text), 10), "T00:00:00Z", "Z"))
        return pc.binary_join_element_wise(text, zone.cast(text.type), pa.scalar("", text.type))
    if is_text(given.type) and pa.types.is_string(wanted):
        return given.cast(pa.large_binary() if pa.types.is_large_string(given.type) else pa.binary())
    return given


def is_text(kind: pa.DataType) -> bool:
    """True for Arrow's types ``string`` and ``large_string``."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cast(given: Any, wanted: pa.DataType, options: pc.CastOptions) -> pa.Array:
    """Casts the values with Arrow. A value that Arrow refuses to cast becomes NULL."""
    try:
        return given.cast(options=options)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(given), wanted)
    except pa.ArrowInvalid:
        if len(given) < 2:
            return pa.nulls(len(given), wanted)
        middle = len(given) // 2
        return pa.concat_arrays([_cast(part, wanted, options) for part in (given[:middle], given[middle:])])


def _is_changed(given: Any, made: Any) -> pa.Array:
    """Returns a mask of the values that Arrow's cast changed without reporting an error."""
    has, wanted = given.type, made.type
    if pa.types.is_floating(has) and pa.types.is_floating(wanted):
        is_changed = pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(given)))
    elif is_text(has) and pa.types.is_floating(wanted):
        is_changed = pc.and_(pc.is_inf(made), pc.invert(pc.match_substring_regex(given, _INFINITY)))
    elif (
        (pa.types.is_floating(has) and (pa.types.is_decimal(wanted) or pa.types.is_boolean(wanted)))
        or (pa.types.is_timestamp(has) and pa.types.is_date(wanted))
        or (pa.types.is_integer(has) and pa.types.is_boolean(wanted))
    ):
        is_changed = pc.not_equal(made.cast(has), given)
    else:
        return pa.array(np.zeros(len(given), np.bool_))
    return pc.fill_null(is_changed, False)


def _is_outside(made: Any) -> pa.Array:
    """Returns a mask of the dates and times outside of the years 1 to 9999."""
    kind = made.type
    if pa.types.is_date32(kind):
        number, first, last = made.cast(pa.int32()), _FIRST_DAY, _LAST_DAY
    elif kind == pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None):
        number, first, last = made.cast(pa.int64()), _FIRST_MICROS, _LAST_MICROS
    else:
        return pa.array(np.zeros(len(made), np.bool_))
    return pc.fill_null(pc.or_(pc.less(number, first), pc.greater(number, last)), False)


def _is_early(given: Any) -> pa.Array:
    """Returns a mask of the dates and times before the first day of the Gregorian calendar."""
    kind = given.type
    if pa.types.is_date(kind):
        number, first = given.cast(pa.date32()).cast(pa.int32()), _FIRST_GREGORIAN_DAY
    elif pa.types.is_timestamp(kind):
        number = given.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
        first = _FIRST_GREGORIAN_MICROS
    else:
        return pa.array(np.zeros(len(given), np.bool_))
    return pc.fill_null(pc.less(number, first), False)


def _moments(number: Any, wanted: pa.DataType) -> Fitted:
    """Converts numbers to timestamps. The magnitude of a number determines its unit (seconds to nanoseconds), as for
    JSON; see ``docs/reference/formats.md``."""
    is_nanos = pc.invert(_is_below(number, 10**17))
    micros = pc.case_when(
        pc.make_struct(_is_below(number, 10**11), _is_below(number, 10**14), pc.invert(is_nanos)),
        pc.multiply(number, 1_000_000),
        pc.multiply(number, 1_000),
        number,
        pc.divide(number, 1_000),
    )
    is_whole = pc.or_(pc.invert(is_nanos), pc.equal(pc.multiply(micros, 1_000), number))
    is_fit = pc.and_(is_whole, pc.and_(pc.greater_equal(micros, _FIRST_MICROS), pc.less_equal(micros, _LAST_MICROS)))
    is_misfit = np.asarray(pc.fill_null(pc.invert(is_fit), False))
    made = pc.if_else(pa.array(~is_misfit), micros, pa.scalar(None, pa.int64()))
    return made.cast(pa.timestamp("us")).cast(wanted), is_misfit


def _is_below(number: Any, limit: int) -> pa.Array:
    # Does not use the absolute value, because the absolute value of the smallest 64-bit number does not fit into 64
    # bits.
    return pc.and_(pc.less(number, limit), pc.greater(number, -limit))
