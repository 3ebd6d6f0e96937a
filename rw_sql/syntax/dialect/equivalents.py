"""Lists Spark's equivalents of constructs and functions of RisingWave and PostgreSQL, for hints.

:mod:`to_spark` refuses these constructs, because Spark's equivalent returns a different result in some cases. The hint
names the equivalent, and the user decides whether to use it. The functions listed here do not exist in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import near_names

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An equivalent in Spark's SQL. ``name`` is the name that messages use for the construct. ``spark`` is the text to
    write in Spark's SQL."""

    name: str
    spark: str


_EXPLODED = "LATERAL VIEW explode(an_array) exploded AS a_value"

_SERIES = "explode(CASE WHEN first <= last THEN sequence(first, last) END)"
"""Spark's equivalent of ``generate_series``. The CASE is needed because ``generate_series`` returns no rows if ``first
> last``, whereas ``sequence`` counts downwards."""

EQUIVALENTS = {
    "ArrayContainsAll": Equivalent("the operator @>", "size(array_except(b, a)) = 0 for a @> b"),
    "ArrayOverlaps": Equivalent("the operator &&", "arrays_overlap(a, b)"),
    "AtTimeZone": Equivalent("AT TIME ZONE", "from_utc_timestamp(x, 'zone') or to_utc_timestamp(x, 'zone')"),
    "Explode": Equivalent("function unnest", "explode(array)"),
    "ExplodingGenerateSeries": Equivalent("function generate_series", _SERIES),
    "GenerateSeries": Equivalent("function generate_series", _SERIES),
    "JSONBContains": Equivalent("the operator ?", "get_json_object(x, '$.key') IS NOT NULL"),
    "JSONBContainsTopKey": Equivalent("the operator ?", "get_json_object(x, '$.key') IS NOT NULL"),
    "Lateral": Equivalent("LATERAL", f"{_EXPLODED}, or a join"),
    "RegexpILike": Equivalent("the operator ~*", "x RLIKE '(?i)pattern', with Java's regular expressions"),
    "RegexpLike": Equivalent("the operator ~", "x RLIKE 'pattern', with Java's regular expressions"),
    "StrToTime": Equivalent("function to_timestamp", "to_timestamp(x, 'yyyy-MM-dd HH:mm:ss')"),
    "StrToDate": Equivalent("function to_date", "to_date(x, 'yyyy-MM-dd')"),
    "TimeToStr": Equivalent("function to_char", "date_format(x, 'yyyy-MM-dd')"),
    "ToChar": Equivalent("function to_char", "date_format(x, 'yyyy-MM-dd') or format_number(x, 2)"),
    "Unnest": Equivalent("function unnest", f"FROM a_relation {_EXPLODED}"),
}
"""Maps the names of sqlglot's expression classes to Spark's equivalents."""

EPOCH = "unix_micros(x) / 1000000"
"""Spark's equivalent of ``extract(epoch FROM x)``."""

SORTED = "array_sort(collect_list(x)), or listagg(x, ',') WITHIN GROUP (ORDER BY y)"
"""Spark's equivalent of an aggregate with ORDER BY in its arguments."""

ONE_ROW_PER_KEY = (
    "SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY a_key ORDER BY …) AS n FROM …) AS numbered WHERE n = 1"
)
"""The equivalent of ``DISTINCT ON (a_key)`` in both dialects."""


_SHORT = 4
"""A function name of at most this length counts as a typing error only if one edit turns it into a known name. For a
longer name, two edits are permitted."""

_JSON_OBJECT = "to_json(named_struct('key', value))"
_JSON_ARRAY = "explode(from_json(x, 'ARRAY<STRING>'))"
_WINDOW = "GROUP BY window(a_column, '1 minute'), or SET query_dialect = 'risingwave'"

_FUNCTIONS = {
    "array_cat": "concat(a, b)",
    "array_length": "array_size(x)",
    "array_to_string": "array_join(x, ',')",
    "array_positions": "array_position(x, value), which returns only the first position",
    "array_replace": "transform(x, e -> CASE WHEN e = a THEN b ELSE e END)",
    "clock_timestamp": "current_timestamp()",
    "date_bin": "date_trunc('HOUR', x), or window(x, '15 minutes').start",
    "format": "printf('%s', x)",
    "gen_random_uuid": "uuid()",
    "generate_series": _SERIES,
    "hop": _WINDOW,
    "json_agg": "to_json(collect_list(x))",
    "json_array_elements": _JSON_ARRAY,
    "json_build_object": _JSON_OBJECT,
    "jsonb_agg": "to_json(collect_list(x))",
    "jsonb_array_elements": _JSON_ARRAY,
    "jsonb_array_elements_text": _JSON_ARRAY,
    "jsonb_array_length": "json_array_length(x)",
    "jsonb_build_object": _JSON_OBJECT,
    "jsonb_each": "explode(from_json(x, 'MAP<STRING, STRING>'))",
    "jsonb_extract_path_text": "get_json_object(x, '$.key')",
    "jsonb_object_agg": "to_json(map_from_entries(collect_list(struct(k, v))))",
    "jsonb_path_query": "get_json_object(x, '$.key')",
    "pg_typeof": "typeof(x)",
    "proctime": "current_timestamp()",
    "regexp_match": "regexp_extract(x, 'pattern', 1)",
    "regexp_matches": "regexp_extract_all(x, 'pattern', 1)",
    "row_to_json": "to_json(x)",
    "sha256": "sha2(x, 256)",
    "sha512": "sha2(x, 512)",
    "starts_with": "startswith(x, prefix)",
    "string_to_array": "split(x, ',')",
    "strpos": "instr(x, part)",
    "to_hex": "lower(hex(x))",
    "to_jsonb": "to_json(x)",
    "tumble": _WINDOW,
    "unnest": "explode(array)",
}
"""Functions of RisingWave and PostgreSQL that Spark does not have, with the text to write instead."""

_TABLE_FUNCTIONS = {
    "generate_series": "range(first, last + 1) AS numbers(n)",
    "jsonb_array_elements": f"FROM a_relation LATERAL VIEW {_JSON_ARRAY} exploded AS a_value",
    "unnest": f"FROM a_relation {_EXPLODED}",
}
"""Functions that have one replacement in FROM and another in expressions, with the replacement in FROM."""


def missing_function_hint(name: str, known: Collection[str], *, in_from: bool = False) -> str:
    """The hint for a function that does not exist. ``known`` are the functions that exist."""
    lower = name.lower()
    spark = (_TABLE_FUNCTIONS.get(lower) if in_from else None) or _FUNCTIONS.get(lower)
    if spark is not None:
        return f"write {spark}"
    near = near_names(lower, known, most=1)
    return f'did you mean "{near[0]}"?' if near else "SHOW FUNCTIONS lists all functions"


def is_mistaken_function(name: str, known: Collection[str]) -> bool:
    """True if a function that is not in ``known`` is probably a mistake rather than a user-defined function: RisingWave
    or PostgreSQL has the function, or its name differs from the name of a known function only by a typing error."""
    lower = name.lower()
    if lower in _FUNCTIONS or lower in _TABLE_FUNCTIONS:
        return True
    most = 1 if len(lower) <= _SHORT else 2
    return any(_edits(lower, near) <= most for near in near_names(lower, known))


def _edits(one: str, other: str) -> int:
    """Returns the number of edits that turn one word into another. An edit inserts, omits or replaces a letter, or
    exchanges two adjacent letters."""
    before, above = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        here = [row]
        for column, wanted in enumerate(other, 1):
            count = min(above[column] + 1, here[-1] + 1, above[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and (letter, one[row - 2]) == (other[column - 2], wanted):
                count = min(count, before[column - 2] + 1)
            here.append(count)
        before, above = above, here
    return above[-1]


def advice(spark: str) -> str:
    """Returns the hint for a construct that must be written as ``spark`` in Spark's SQL."""
    return f"SET query_dialect = 'spark', and write {spark}"
