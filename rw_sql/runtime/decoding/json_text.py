"""Provides Spark expressions that read a string as JSON only if the string is exactly one JSON object.

Spark's ``from_json`` ignores text after the first value, decodes invalid UTF-8 to other characters, and rounds a number
that is read as STRING to the nearest double. This module avoids each of these problems, at the cost of a few
instructions per valid record:

- The text's last brace is replaced by two parts: a member whose name no record contains, and a brace. The parser finds
  this member in the outermost object only if the replaced brace closed that object (see :func:`is_whole`).
- Numbers that Spark would change are converted to strings with a mark (see :func:`with_marks` and
  :func:`without_marks`).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column

SECRET = f"rw{secrets.token_hex(4)}"
"""Text that no record contains. Each process chooses this text at random. Therefore, nobody can craft a record that
contains it."""

END = f"{SECRET}end"
"""The name of the BOOLEAN member that :func:`with_end` inserts before the last brace."""

CORRUPT = "_rw_corrupt"

LONG_STRINGS = {"maxStringLen": str(2**31 - 1)}
"""By default, ``from_json`` reads no string of more than 20,000,000 characters. This option removes the limit."""

OPTIONS = {
    **LONG_STRINGS,
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowComments": "false",
    "allowUnquotedFieldNames": "false",
    "allowSingleQuotes": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
}
"""With these options, ``from_json`` accepts only JSON as in RFC 8259."""

NO_VALUE = "the record has no value"
NOT_UTF8 = "the value is not UTF-8"
HALF_CHARACTER = "the value has half of a surrogate pair for a character"
GOES_ON = "the value has text after its JSON object"

_MARK = f"{SECRET}n"
_PART = f"{SECRET}part"
SPACE = r"[ \t\r\n]*+"
"""A pattern for the white space that may stand between two tokens of JSON."""

_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?(?:[eE][+-]?[0-9]++)?"
# Quantified groups are possessive. For other groups, Java's matcher uses recursion, and long text would overflow the
# stack.
_UNMARKED = rf'\G((?:[^"\-0-9]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+)({_NUMBER})(?={SPACE}[,}}\]])'
_CHANGING = rf"[:\[,]{SPACE}(?:-?[0-9]++[.eE]|-0|-?[0-9]{{999}})"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# The pattern reads the text from the beginning, because otherwise it would not be known which backslash begins an
# escape: \\ud83d is text.
_HALF = rf"\A(?:[^\\]++|{_HIGH}{_LOW}|\\u(?![dD][89a-fA-F])|\\[^u])*+\\u[dD]"


def characters(raw: Column) -> Column:
    """Bytes decoded as text."""
    return raw.cast("string")


def is_text(raw: Column) -> Column:
    """True if the bytes are UTF-8 and no JSON escape is half of a surrogate pair."""
    text = characters(raw)
    return f.is_valid_utf8(text) & ~(f.contains(text, f.lit("\\u")) & text.rlike(_HALF))


def not_text(raw: Column) -> Column:
    """The error message for bytes for which :func:`is_text` is false."""
    return f.when(f.is_valid_utf8(characters(raw)), f.lit(HALF_CHARACTER)).otherwise(f.lit(NOT_UTF8))


def with_end(raw: Column) -> Column:
    """Adds the member END before the last brace of the text. A parser finds this member only if the text is a single
    object."""
    text = characters(raw)
    member = f'"{END}":true}}'
    # The text is cut by bytes, because Spark would otherwise count characters from the beginning.
    cut = f.concat(f.substring(raw, f.lit(1), f.octet_length(raw) - 1), f.lit(f",{member}".encode()))
    return (
        f.when(f.startswith(text, f.lit('{"')) & f.endswith(text, f.lit("}")), characters(cut))
        .when(text.rlike(rf"\A{SPACE}\{{{SPACE}\}}{SPACE}\z"), f.lit("{" + member))
        .otherwise(f.regexp_replace(text, rf"\}}{SPACE}\z", f",{member}"))
    )


def is_changing(text: Column) -> Column:
    """True if a JSON text may contain numbers that Spark would change or cannot read. The result is also true if only a
    string in the text contains such a number, after a colon, a bracket or a comma."""
    return text.rlike(_CHANGING)


def with_marks(text: Column) -> Column:
    """Converts the numbers in JSON to marked strings; invalid JSON stays invalid."""
    return f.regexp_replace(text, _UNMARKED, f'$1"{_MARK}$2"')


def without_marks(text: Column) -> Column:
    """Removes the marks of :func:`with_marks` from ``text``, which is either a single value or JSON."""
    bare = f.regexp_replace(text, rf'"{_MARK}([^"]*+)"', "$1")
    return f.when(f.contains(text, f.lit(_MARK)), f.replace(bare, f.lit(_MARK), f.lit(""))).otherwise(text)


def exact(text: Column) -> Column:
    """Returns the JSON text. If Spark may change any number in the text, all numbers in the result are marked."""
    return f.when(is_changing(text), with_marks(text)).otherwise(text)


def members(text: Column, schema: str, options: Mapping[str, str] | None = None) -> Column:
    """Parses the result of :func:`with_end`. Returns a struct with the members that ``schema`` names, and with the
    fields that :func:`is_whole` checks."""
    return f.from_json(text, f"{schema}, `{END}` BOOLEAN, `{CORRUPT}` STRING", {**OPTIONS, **(options or {})})


def is_whole(read: Column) -> Column:
    """True if the result of :func:`members` is one JSON object that fits the schema, with no text after it."""
    return read.isNotNull() & read[CORRUPT].isNull() & read[END].isNotNull()


def all_members(text: Column) -> Column:
    """Returns the members of a JSON object as a map from names to text; NULL if the text is not exactly one JSON
    object.

    The text must come from :func:`with_end`, and the map contains ``END``. If several members have the same name, the
    map contains only the last of them.
    """
    read = f.from_json(text, "MAP<STRING, STRING>", OPTIONS)
    return let(read, lambda fields: f.when(f.map_contains_key(fields, f.lit(END)), last_of_each(fields)))


def part(text: Column, shape: str) -> Column:
    """Reads ``text`` as a value of the nested Spark type ``shape``; NULL if the text is not exactly one JSON value.

    The text may come from a string inside a record, and may therefore be invalid JSON. Numbers keep their digits.
    """
    # Any further text would come between the value and the null, or would end the array or the object too early.
    whole = f.concat(f.lit(f'{{"{_PART}":['), exact(text), f.lit(f',null],"{END}":true}}'))
    schema = f"`{_PART}` ARRAY<{shape}>, `{END}` BOOLEAN, `{CORRUPT}` STRING"
    return let(
        f.from_json(whole, schema, OPTIONS),
        lambda read: f.when(is_whole(read) & (f.size(read[_PART]) == 2), f.get(read[_PART], f.lit(0))),
    )


def let(value: Column, use: Callable[[Column], Column]) -> Column:
    """Calls ``use`` with a reference to ``value``, and returns the resulting expression.

    The value is computed once, even if the expression references it several times.

    Spark interprets the expression and does not compile it. Therefore, the compiled code around the expression stays
    small.
    """
    return f.get(f.transform(f.array(value), use), f.lit(0))


def once(value: Column) -> Column:
    """Returns a column that is computed once, even if it is used several times.

    Spark recomputes a deterministic column wherever it is used. A filter on errors, for example, would parse each value
    again. This function adds a non-deterministic condition, which prevents the repetition. The condition is around the
    call of from_json, not around the argument of from_json, because Spark compiles the code around from_json but
    interprets the argument of from_json for each record.
    """
    return f.when(f.spark_partition_id() >= 0, value)


def joined(operator: Callable[[Column, Column], Column], parts: Sequence[Column]) -> Column:
    """Combines one or more columns with an associative operator. The resulting expression is a balanced tree.

    Spark's analyzer and compiler work recursively. With hundreds of columns in a chain, the recursion overflows the
    stack.
    """
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return operator(joined(operator, parts[:half]), joined(operator, parts[half:]))


def field_of(fields: Column, name: str, names: Iterable[str]) -> Column:
    """Returns the text of the field whose name is exactly ``name``. If there is no such field, returns the text of the
    last field whose name differs from ``name`` only in case.

    In the map ``fields``, each name occurs once (:func:`last_of_each`). ``names`` are all names that are read from the
    object. If another of these names differs from ``name`` only in case, only an exact match counts.
    """
    other = f.lit(None).cast("string")
    if sum(each.lower() == name.lower() for each in set(names)) <= 1:
        alike = f.filter(f.map_keys(fields), lambda key: in_lower_case(key) == f.lit(name.lower()))
        other = f.try_element_at(fields, f.try_element_at(alike, f.lit(-1)))
    return f.when(f.map_contains_key(fields, f.lit(name)), f.try_element_at(fields, f.lit(name))).otherwise(other)


def in_lower_case(text: Column) -> Column:
    """Converts ``text`` to lower case. In every locale, the result equals the result of Python's ``str.lower``. Java
    alone would convert I and İ to other letters in the Turkish locale."""
    return f.lower(f.replace(f.translate(text, "I", "i"), f.lit("İ"), f.lit("i\u0307")))


def last_of_each(fields: Column) -> Column:
    """Returns a map in which each key occurs once, with the last value of the key. Maps that Spark reads from JSON may
    contain duplicate keys."""
    keys = f.map_keys(fields)
    return f.when(has_twins(keys), map_of(keys, f.map_values(fields))).otherwise(fields)


def map_of(keys: Column, values: Column) -> Column:
    """Returns a map of keys and values. If a key occurs several times, the map contains its last value. NULL keys and
    their values are left out."""
    places = f.filter(
        f.sequence(f.lit(1), f.size(keys)),
        lambda at: let(
            f.get(keys, at - f.lit(1)),
            lambda key: (
                key.isNotNull()
                & ~f.coalesce(f.array_contains(f.slice(keys, at + f.lit(1), f.size(keys)), key), f.lit(False))
            ),
        ),
    )
    made = f.map_from_arrays(
        f.transform(places, lambda at: f.get(keys, at - f.lit(1))),
        f.transform(places, lambda at: f.get(values, at - f.lit(1))),
    )
    # The condition is needed because a sequence from 1 to 0 would count down.
    return f.when(f.size(keys) > 0, made).otherwise(f.map_from_arrays(keys, values))


def has_twins(keys: Column) -> Column:
    """True if ``keys``, the keys of a map, contain a key more than once."""
    return f.size(f.array_distinct(keys)) < f.size(keys)
