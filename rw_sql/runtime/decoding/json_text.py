"""Texts that are one JSON object and nothing else, as expressions of Spark.

Spark's ``from_json`` ends at the first value's end and does not look at what comes behind it, decodes what is no UTF-8
as something else, and writes a number that a STRING is wanted of as the nearest double. Each has its mend here, for the
price of a few instructions on a good record:

- The text's last brace gives way to a member with a name that no record knows, and a brace. Only where that brace ended
  the whole object does a parser meet the member in it: :func:`is_whole`.
- Numbers are made strings with a mark, where one would be changed: :func:`with_marks`, :func:`without_marks`.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column

SECRET = f"rw{secrets.token_hex(4)}"
"""What no record has in it: of each process its own, so that none can be written to have it."""

END = f"{SECRET}end"
"""The name of the member that the last brace gives way to, of type BOOLEAN."""

CORRUPT = "_rw_corrupt"

OPTIONS = {
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
"""``from_json`` takes what RFC 8259 calls JSON, and no more."""

NO_VALUE = "the record has no value"
NOT_UTF8 = "the value is not UTF-8"
HALF_CHARACTER = "the value has half of a surrogate pair for a character"
GOES_ON = "the value goes on behind its JSON object"

_MARK = f"{SECRET}n"
_PART = f"{SECRET}part"
SPACE = r"[ \t\r\n]*+"
"""A pattern of the white space that JSON has between its parts."""

_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?(?:[eE][+-]?[0-9]++)?"
# Whatever quantifies a group is possessive: Java's matcher goes by recursion through any other, and a long text would
# need more stack than a thread has.
_UNMARKED = rf'\G((?:[^"\-0-9]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+)({_NUMBER})(?={SPACE}[,}}\]])'
_CHANGING = rf"[:\[,]{SPACE}(?:-?[0-9]++[.eE]|-0|-?[0-9]{{999}})"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rf"(?<!\\)(?:\\\\)*+(?:{_HIGH}(?!{_LOW})|(?<!\\u[dD][89abAB][0-9a-fA-F]{{2}}){_LOW})"


def characters(raw: Column) -> Column:
    """Bytes as the text that they are taken for."""
    return raw.cast("string")


def is_text(raw: Column) -> Column:
    """Whether the bytes are UTF-8 and each of their escapes is a character, or with the next one, is."""
    text = characters(raw)
    return f.is_valid_utf8(text) & ~(f.contains(text, f.lit("\\u")) & text.rlike(_HALF))


def not_text(raw: Column) -> Column:
    """What is wrong with bytes of which :func:`is_text` is not true."""
    return f.when(f.is_valid_utf8(characters(raw)), f.lit(HALF_CHARACTER)).otherwise(f.lit(NOT_UTF8))


def with_end(raw: Column) -> Column:
    """The text with the member END as its last, which a parser meets where the text is one object."""
    text = characters(raw)
    member = f'"{END}":true}}'
    # By bytes: Spark counts the characters of a text to find one.
    cut = f.concat(f.substring(raw, f.lit(1), f.octet_length(raw) - 1), f.lit(f",{member}".encode()))
    return (
        f.when(f.startswith(text, f.lit('{"')) & f.endswith(text, f.lit("}")), characters(cut))
        .when(text.rlike(rf"\A{SPACE}\{{{SPACE}\}}{SPACE}\z"), f.lit("{" + member))
        .otherwise(f.regexp_replace(text, rf"\}}{SPACE}\z", f",{member}"))
    )


def is_changing(text: Column) -> Column:
    """Whether a JSON text has numbers that Spark would write otherwise or not read, or a string that looks so."""
    return text.rlike(_CHANGING)


def with_marks(text: Column) -> Column:
    """The JSON with its numbers as strings with a mark; what is no JSON does not become so."""
    return f.regexp_replace(text, _UNMARKED, f'$1"{_MARK}$2"')


def without_marks(text: Column) -> Column:
    """A number, or JSON with numbers in it, as it was written."""
    bare = f.regexp_replace(text, rf'"{_MARK}([^"]*+)"', "$1")
    return f.when(f.contains(text, f.lit(_MARK)), f.replace(bare, f.lit(_MARK), f.lit(""))).otherwise(text)


def exact(text: Column) -> Column:
    """The JSON with marks around its numbers where one would be changed."""
    return f.when(is_changing(text), with_marks(text)).otherwise(text)


def members(text: Column, schema: str, options: Mapping[str, str] | None = None) -> Column:
    """What a text of :func:`with_end` has of the members that a schema names, and what :func:`is_whole` looks at."""
    return f.from_json(text, f"{schema}, `{END}` BOOLEAN, `{CORRUPT}` STRING", {**OPTIONS, **(options or {})})


def is_whole(read: Column) -> Column:
    """Whether what :func:`members` read is one JSON object that fits the schema, with nothing behind it."""
    return read.isNotNull() & read[CORRUPT].isNull() & read[END].isNotNull()


def all_members(text: Column) -> Column:
    """The members of a JSON object as a map of names to texts; NULL where the text is not one JSON object.

    The text is one of :func:`with_end`. Of equal names the last counts, and one of the names is ``END``.
    """
    read = f.from_json(text, "MAP<STRING, STRING>", OPTIONS)
    return let(read, lambda fields: f.when(f.map_contains_key(fields, f.lit(END)), last_of_each(fields)))


def part(text: Column, shape: str) -> Column:
    """The one JSON value that a text holds, as a nested type of Spark's; NULL where it holds anything else.

    The text may be what a string of a record held, so nothing is known of it. Numbers keep their digits.
    """
    # Whatever else the text has stands between the value and the null, or ends the array or the text.
    whole = f.concat(f.lit(f'{{"{_PART}":['), exact(text), f.lit(f',null],"{END}":true}}'))
    schema = f"`{_PART}` ARRAY<{shape}>, `{END}` BOOLEAN, `{CORRUPT}` STRING"
    return let(
        f.from_json(whole, schema, OPTIONS),
        lambda read: f.when(is_whole(read) & (f.size(read[_PART]) == 2), f.get(read[_PART], f.lit(0))),
    )


def let(value: Column, use: Callable[[Column], Column]) -> Column:
    """An expression of a value that is computed once, and written down once however often it is named.

    Spark interprets it, in a method of its own: it does not count for the size of the compiled code around it.
    """
    return f.get(f.transform(f.array(value), use), f.lit(0))


def once(value: Column) -> Column:
    """A column that is computed once, however often it is used.

    Spark computes a deterministic column again at each place that uses it: "is there an error" in a filter would read
    the value again. The condition stands around the reading and not in its text: the argument of from_json is
    interpreted for each record, the code around it is compiled.
    """
    return f.when(f.spark_partition_id() >= 0, value)


def field_of(fields: Column, name: str, names: Iterable[str]) -> Column:
    """The text under a name; where there is none, the last under that name in another case.

    ``fields`` has each name once (:func:`last_of_each`). ``names`` are all that are looked up in the object: a name of
    which there is another that differs in case alone is found as it is written, and no other way.
    """
    other = f.lit(None).cast("string")
    if sum(each.lower() == name.lower() for each in set(names)) <= 1:
        alike = f.filter(f.map_keys(fields), lambda key: f.lower(key) == f.lit(name.lower()))
        other = f.try_element_at(fields, f.try_element_at(alike, f.lit(-1)))
    return f.when(f.map_contains_key(fields, f.lit(name)), f.try_element_at(fields, f.lit(name))).otherwise(other)


def last_of_each(fields: Column) -> Column:
    """A map with the last of its equal keys alone. Spark's maps out of JSON have them all."""
    keys = f.map_keys(fields)
    return f.when(has_twins(keys), map_of(keys, f.map_values(fields))).otherwise(fields)


def map_of(keys: Column, values: Column) -> Column:
    """A map of keys and their values, of equal keys the last alone, without a key that is NULL."""
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
    # A sequence from 1 to 0 counts down.
    return f.when(f.size(keys) > 0, made).otherwise(f.map_from_arrays(keys, values))


def has_twins(keys: Column) -> Column:
    """Whether one of the keys is there twice."""
    return f.size(f.array_distinct(keys)) < f.size(keys)
