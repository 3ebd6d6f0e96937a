"""Sorts the rows of an upsert. In the result, a row that gets a unique value comes after the row that gives up this
value.

PostgreSQL checks a UNIQUE constraint after each row. In the opposite order, PostgreSQL would refuse the row that gets
the value.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from psycopg import Connection, sql

_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""

_IS_INDEPENDENT = """
SELECT c.relkind = 'r' AND NOT c.relhassubclass AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_constraint f WHERE f.contype = 'f' AND f.conrelid = c.oid AND f.confrelid = c.oid
) AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_index i
    WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion) AND (
        i.indisexclusion OR i.indexprs IS NOT NULL OR i.indnkeyatts <> cardinality(%(keys)s::text[]) OR EXISTS (
            SELECT FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
            AND a.attname::text <> ALL (%(keys)s::text[])
        ) OR EXISTS (
            SELECT FROM pg_catalog.pg_collation o WHERE o.oid = ANY (i.indcollation) AND NOT o.collisdeterministic
        )
    )
)
FROM pg_catalog.pg_class c WHERE c.oid = %(target)s::regclass
"""

_KEY_TYPES = """
SELECT a.attname::text, t.typname::text
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid AND t.typnamespace = 'pg_catalog'::regnamespace
LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
WHERE a.attrelid = %(target)s::regclass AND a.attname::text = ANY (%(keys)s::text[])
AND coalesce(o.collisdeterministic, true) AND (a.atttypmod = -1 OR t.typname = 'varchar')
"""

_INTEGERS = {"int2", "int4", "int8", "numeric"}
_EXACT_TYPES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _INTEGERS),
    "string": {"text", "varchar"},
    "boolean": {"bool"},
    "binary": {"bytea"},
    "date": {"date"},
    "timestamp": {"timestamptz", "timestamp"},
    "timestamp_ntz": {"timestamp"},
    "decimal": {"numeric"},
}
"""Maps each of Spark's types to the types of PostgreSQL in which different values of Spark's type are stored as
different values."""

_NUMBER = "_rw_index"


def unique_columns(
    connection: Connection[Any], target: sql.Identifier, *, keys: Sequence[str], columns: Sequence[str]
) -> list[list[str]]:
    """The sets of columns whose values must be unique in the table ``target``, without the key. The result contains
    only sets in which every column is one of ``columns``. Raises psycopg.Error."""
    found = connection.execute(_UNIQUE, [target.as_string(connection)]).fetchall()
    return [unique for (unique,) in found if set(unique) != set(keys) and set(unique) <= set(columns)]


def are_rows_independent(connection: Connection[Any], target: sql.Identifier, keys: Mapping[str, Any]) -> bool:
    """True if the table accepts or refuses an upserted or deleted row independently of rows with other keys.

    False if the table has a UNIQUE or EXCLUDE constraint in addition to the key, if the table has a FOREIGN KEY that
    refers to the table itself, if the table may consider different keys equal, or if the table is not an ordinary
    table. ``keys`` are the key columns with their types in Spark's JSON form. Triggers are ignored. Raises
    psycopg.Error.
    """
    parameters = {"target": target.as_string(connection), "keys": list(keys)}
    found = connection.execute(_IS_INDEPENDENT, parameters).fetchone()
    if found is None or not found[0]:
        return False
    types = dict(connection.execute(_KEY_TYPES, parameters).fetchall())
    return all(
        isinstance(kind, str) and types.get(key) in _EXACT_TYPES.get(kind.partition("(")[0], ())
        for key, kind in keys.items()
    )


def holders_first(
    connection: Connection[Any],
    target: sql.Identifier,
    batch: sql.Identifier,
    *,
    keys: Sequence[str],
    unique: Iterable[Sequence[str]],
) -> list[int]:
    """Returns the numbers of the rows of ``batch`` in a suitable order: a row that gives up a unique value comes before
    the row that gets this value.

    ``batch`` is a table that was filled by one COPY. The rows of ``batch`` are numbered from 0. ``unique`` contains the
    sets of columns with unique values. Rows without such an order, for example two rows that swap their values, come
    last. Raises psycopg.Error.
    """
    from psycopg import sql

    # The server does not collect the statistics of a temporary table by itself. Without these statistics, the joins may
    # be slow.
    connection.execute(sql.SQL("ANALYZE {}").format(batch))
    counted = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(batch)).fetchone()
    edges: set[tuple[int, int]] = set()
    for columns in unique:
        # In a table that is filled only by COPY, ctid follows the order of the rows.
        query = sql.SQL(
            "WITH batch AS (SELECT {columns}, row_number() OVER (ORDER BY ctid) - 1 AS {number} FROM {batch}) "
            "SELECT holder.{number}, taker.{number} FROM batch taker JOIN {target} held ON {same_value} "
            "JOIN batch holder ON {same_key} WHERE holder.{number} <> taker.{number}"
        ).format(
            columns=sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys([*keys, *columns]))),
            number=sql.Identifier(_NUMBER),
            batch=batch,
            target=target,
            same_value=_equal("held", "taker", columns),
            same_key=_equal("held", "holder", keys),
        )
        edges.update((holder, taker) for holder, taker in connection.execute(query).fetchall())
    return list(_sorted(int(counted[0]) if counted else 0, edges))


def _equal(one: str, other: str, columns: Iterable[str]) -> sql.Composed:
    from psycopg import sql

    parts = (sql.SQL("{0}.{2} = {1}.{2}").format(*map(sql.Identifier, (one, other, name))) for name in columns)
    return sql.SQL(" AND ").join(parts)


def _sorted(count: int, edges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Returns the numbers below ``count`` in topological order: for each edge, the first number comes before the second
    number. Numbers in a cycle of edges, and the numbers after a cycle, come last."""
    waits: Counter[int] = Counter()
    followers: dict[int, list[int]] = defaultdict(list)
    for holder, taker in edges:
        waits[taker] += 1
        followers[holder].append(taker)
    ready = [number for number in range(count) if not waits[number]]
    for number in ready:
        yield number
        for taker in followers[number]:
            waits[taker] -= 1
            if not waits[taker]:
                ready.append(taker)
    yield from (number for number in range(count) if waits[number])
