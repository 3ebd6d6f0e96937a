"""Reads a PostgreSQL table as a Spark Python data source. All parts of the table are read from the same snapshot of the
database.

Spark's workers receive the code of this module with each task (pickled by value), so rw_sql need not be installed on
the workers. The password is in a file that only this user can read, because a data source's options appear in Spark's
plans and logs. A process on the driver's machine reads this file. Spark then sends the reader, which contains the
password, to the executors as a part of each task.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rw_sql.connectors.jdbc.table_changes import require_same_tables
from rw_sql.connectors.jdbc.types import DATE, TIMESTAMP
from rw_sql.connectors.support.data_sources import register_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from rw_sql.connectors.jdbc.types import PostgresColumn

_BLOCK_BYTES = 1 << 25
"""The size in bytes of the blocks in which Arrow parses the rows' text, and the maximum size of a row's text."""

_READ_BYTES = 1 << 20
_PASSWORD_FILE = "password_file"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8. Arrow drops these bytes at the beginning of its input, even if they are the first
character of a value. Therefore, the input always begins with an extra byte order mark, which Arrow drops instead."""

_SESSION = (
    "SET TIME ZONE 'UTC'",
    "SET datestyle = 'ISO, YMD'",
    "SET intervalstyle = 'postgres'",
    "SET extra_float_digits = 3",
    # Otherwise the text would be in the database's encoding, or in the encoding that the role's settings name.
    "SET client_encoding = 'UTF8'",
)
"""The statements that set the text form of values. Otherwise, the text form would depend on the settings of the server
and the role."""

_LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_WITH_TRANSACTION_TIMEOUT = 170_000
"""The first version of PostgreSQL with ``transaction_timeout``."""


def lift_limits(connection: Any) -> None:
    """Disables the server's and the role's time limits for the connection, as ``pg_dump`` does.

    Such limits would end the transactions of a read. These transactions last as long as the read, and may be idle for a
    long time. The caller must not be inside a transaction.
    """
    is_newer = connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT
    for name in (*_LIMITS, *(("transaction_timeout",) if is_newer else ())):
        connection.execute(f"SET {name} = 0")


class _Copied(io.RawIOBase):
    """The output of COPY … TO STDOUT as a readable binary file."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class TableReader(DataSourceReader):
    """Reads the parts of a table, each over its own connection."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = json.loads(options["given"])
        # Spark creates the reader in a process on the driver's machine. Executors may not have the file.
        self._server = _with_password(self._given["server"])

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in self._given["parts"]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import psycopg

        given, server = self._given, self._server
        with psycopg.connect(**server, autocommit=True) as connection:
            lift_limits(connection)
            for statement in _SESSION:
                connection.execute(statement)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{given['snapshot']}'".encode())
            query = given["query"] + _condition(*partition.value)
            # When the server plans the query, it locks the same tables as when it runs the query.
            connection.execute(f"EXPLAIN {query}".encode())
            require_same_tables(connection, given["table"], server)
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT WITH (FORMAT csv)".encode()) as copy:
                yield from _batches(iter(copy), given["names"])
            # COPY locks further tables: tables that a function reads, and tables that were attached after the EXPLAIN.
            require_same_tables(connection, given["table"], server)


class TableDataSource(DataSource):
    """The data source of ``spark.read.format("rw_sql_jdbc")``. All columns are text, and their names are ``c0``,
    ``c1``, …"""

    @classmethod
    def name(cls) -> str:
        return "rw_sql_jdbc"

    def schema(self) -> str:
        return ", ".join(f"{name} string" for name in json.loads(self.options["given"])["names"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self.options)


def _batches(blocks: Iterator[Any], names: list[str]) -> Iterator[Any]:
    """The rows of COPY's output in CSV format, as Arrow batches with columns of strings."""
    import pyarrow as pa
    from pyarrow import csv

    first = next(blocks, None)
    if first is None:
        return
    yield from csv.open_csv(
        io.BufferedReader(_Copied(chain((_BYTE_ORDER_MARK, first), blocks)), _READ_BYTES),
        read_options=csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _condition(start: int, end: int) -> str:
    """The WHERE clause that selects the rows in the pages ``[start, end)``. An ``end`` of 0 means that the range has no
    upper limit. If both ``start`` and ``end`` are 0, returns the empty string, because all rows are selected."""
    parts = [f"ctid >= '({start},0)'"] if start else []
    parts += [f"ctid < '({end},0)'"] if end else []
    return " WHERE " + " AND ".join(parts) if parts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A table in an exported snapshot of a database. ``table`` is the table's quoted name, and ``snapshot`` is the
    snapshot's id. ``parts`` are ranges of pages; a separate task reads each range."""

    server: Mapping[str, str]
    snapshot: str
    table: str
    columns: Mapping[str, PostgresColumn]
    parts: Sequence[tuple[int, int]]


def read_snapshot(
    spark: SparkSession,
    upstream: Upstream,
    columns: Mapping[str, str],
    misfit: Callable[[str, Column, Mapping[str, Column]], Column],
) -> DataFrame:
    """Returns the rows of a table. ``columns`` maps the names of the columns to read to their types in Spark DDL.

    A value that does not fit its column causes an error. ``misfit`` builds the error message from the column's name,
    the value as text, and all values of the row as text.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    _register(spark)
    ddl = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())
    types = cast("StructType", StructType.fromDDL(ddl)).fields
    selected = ", ".join(_selected(field.name, field.dataType, upstream.columns) for field in types)
    names = [f"c{at}" for at, _ in enumerate(types)]
    given = {
        "server": _without_password(upstream.server),
        "snapshot": upstream.snapshot,
        "table": upstream.table,
        "query": f"SELECT {selected} FROM {upstream.table}",
        "names": names,
        "parts": [list(part) for part in upstream.parts],
    }
    raw = spark.read.format("rw_sql_jdbc").option("given", json.dumps(given)).load()
    texts = {field.name: _shown(f.col(name), field.dataType) for name, field in zip(names, types, strict=True)}
    return raw.select(
        *(
            _typed(f.col(name), field.dataType, misfit(field.name, texts[field.name], texts)).alias(field.name)
            for name, field in zip(names, types, strict=True)
        )
    )


def _without_password(server: Mapping[str, str]) -> dict[str, str]:
    from rw_sql.connectors.support.private_files import private_file, share_with_executors

    share_with_executors(server.values())
    made = {key: value for key, value in server.items() if key != "password"}
    if "password" in server:
        made[_PASSWORD_FILE] = str(private_file(server["password"]))
    return made


def _with_password(server: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of the connection, with the password from its file.

    The library libpq can itself read the password from a file (``passfile``), but the environment variable PGPASSWORD
    would take precedence over that file.
    """
    made = dict(server)
    if _PASSWORD_FILE in made:
        with open(made.pop(_PASSWORD_FILE), encoding="utf-8", newline="") as file:
            made["password"] = file.read()
    return made


def _selected(name: str, kind: DataType, known: Mapping[str, PostgresColumn]) -> str:
    """The SQL expression that selects a column as text for :func:`_typed`."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, NumericType, StructType, TimestampType

    column = '"' + name.replace('"', '""') + '"'
    match kind:
        case BinaryType():
            return f"encode({column}, 'hex')"
        case ArrayType() | MapType() | StructType():
            return f"to_jsonb({column})::text"
        case TimestampType() if name not in known or known[name].family in (DATE, TIMESTAMP):
            return f"({column}::timestamptz AT TIME ZONE 'UTC')::text || 'Z'"
        case NumericType() if name in known and known[name].family == "money":
            return f"{column}::numeric::text"
        case _:
            return f"{column}::text"


def _shown(text: Column, kind: DataType) -> Column:
    """The text of a value as the database prints it. For a timestamp, removes the ``Z`` that :func:`_selected`
    appends."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    return f.regexp_replace(text, r"Z\z", "") if isinstance(kind, TimestampType) else text


_WHOLE = r"^\s*+[+-]?[0-9]++\s*+\z"
_NUMBER = r"^\s*+[+-]?(?:[0-9]++[.]?[0-9]*+|[.][0-9]++)(?:[eE][+-]?[0-9]{1,3})?\s*+\z"
_INFINITY = r"^\s*+[+-]?(?:Infinity|inf|INF|Inf)\s*+\z"
_NAN = r"^\s*+(?i:nan)\s*+\z"
_TRUTH = r"^\s*+(?i:true|false|1|0)\s*+\z"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6})?"
_OFFSET = r"(?:Z|[+-][0-9]{2}(?::[0-9]{2}){0,2})"
_NO_OFFSET = r"(?:Z|[+-]00(?::00){0,2})"
_MIDNIGHT = rf"[T ]00:00:00(?:[.]0++)?{_NO_OFFSET}?"
"""The patterns above match the strings that PostgreSQL writes for numbers, booleans, dates and times. With VALIDATE =
false, a text column can be declared with one of these types. The column may contain strings that PostgreSQL never
writes for the type, but that Spark's casts would accept: digits of other scripts, ``yes``, ``2024``, or a time of day
after a date. The patterns refuse such strings."""

_DECIMAL = re.compile(r"\bdecimal\((\d+),(\d+)\)")
_ODD_TIMES = '"([0-9]{5,}-[0-9]{2}-[0-9]{2}|[^"]* BC"|-?infinity")'
"""Matches JSON with a date or time that Spark cannot represent or would misread."""


def _typed(text: Column, kind: DataType, misfit: Column) -> Column:
    """Converts a column from text to the type ``kind``. A value that does not fit this type raises an error with the
    text ``misfit``."""
    from pyspark.sql import functions as f

    value, fits = _read(text, kind)
    return value if fits is None else f.when(text.isNull() | fits, value).otherwise(f.raise_error(misfit))


def _read(text: Column, kind: DataType) -> tuple[Column, Column | None]:
    """Returns two expressions. The first expression converts a string to a value. The second expression is true if the
    string is valid; it is None if every string is valid."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DateType,
        DecimalType,
        DoubleType,
        FloatType,
        MapType,
        StringType,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    match kind:
        case StringType():
            return text, None
        case BinaryType():
            return f.unhex(text), None
        case ArrayType() | MapType() | StructType():
            return _nested(text, kind)
    value = f.when(text.rlike(_pattern(kind)), text.try_cast(kind))
    fits = value.isNotNull()
    match kind:
        case DateType() | TimestampType() | TimestampNTZType():
            # Spark would read a year BC as a year AD. Years after 9999 are refused too, because few programs can read
            # them.
            last = {DateType: "DATE '9999-12-31'", TimestampNTZType: "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"}
            bound = f.expr(last.get(type(kind), "TIMESTAMP '9999-12-31 23:59:59.999999Z'"))
            fits = fits & ~text.contains("BC") & (value <= bound)
        case FloatType() | DoubleType():
            fits = fits & ((f.abs(value) != float("inf")) | text.rlike(_INFINITY))
        case DecimalType():
            # Spark would round a number with too many decimal places. PostgreSQL writes an exponent only for a float,
            # so a string with an exponent is compared as a float.
            is_rounded = text.rlike(f"[.][0-9]{{{kind.scale}}}[0-9]*[1-9]")
            is_same = value.cast("double") == text.try_cast("double")
            fits = fits & f.when(text.rlike("[eE]"), is_same).otherwise(~is_rounded)
    return value, fits


def _pattern(kind: DataType) -> str:
    """The pattern of the strings that can be read as a type."""
    from pyspark.sql.types import (
        BooleanType,
        DateType,
        DecimalType,
        DoubleType,
        FloatType,
        IntegralType,
        TimestampNTZType,
        TimestampType,
    )

    match kind:
        case BooleanType():
            return _TRUTH
        case IntegralType():
            return _WHOLE
        case FloatType() | DoubleType():
            return f"{_NUMBER}|{_INFINITY}|{_NAN}"
        case DecimalType():
            return _NUMBER
        case DateType():
            return rf"{_DAY}(?:{_MIDNIGHT})?\z"
        case TimestampType():
            return rf"{_DAY}{_TIME}{_OFFSET}\z"
        case TimestampNTZType():
            return rf"{_DAY}(?:{_TIME}{_NO_OFFSET}?)?\z"
    raise TypeError(f"no text of PostgreSQL is read as {kind.simpleString()}")


def _nested(text: Column, kind: DataType) -> tuple[Column, Column]:
    """Decodes a value from JSON.

    The JSON is wrapped in an object, because Spark reports an invalid part only inside an object.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BinaryType

    is_bytes = isinstance(kind, ArrayType) and isinstance(kind.elementType, BinaryType)
    word = "array<string>" if is_bytes else kind.simpleString()
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "c"}
    whole = f.concat(f.lit('{"v":'), text, f.lit("}"))
    read = f.from_json(whole, f"v {word}, c string", options)
    fits = read.getField("c").isNull()
    if _DECIMAL.search(word):
        fits = fits & _has_all_digits(text, whole, word, options)
    if "date" in word or "timestamp" in word:
        fits = fits & ~text.rlike(_ODD_TIMES)
    value = read.getField("v")
    if is_bytes:  # to_jsonb writes bytes as \\x00ff; Spark reads base64.
        value = f.transform(value, lambda item: f.unhex(f.substring(item, 3, 2_147_483_647)))
    return value, fits


def _has_all_digits(text: Column, whole: Column, word: str, options: Mapping[str, str]) -> Column:
    """True if Spark can read all decimals of the JSON in ``whole`` without rounding. ``word`` is the text of the type,
    which contains the precision and the scale of each decimal.

    Reads the decimals a second time with the largest scale that fits their type, and compares the two results. (In
    JSON, PostgreSQL writes decimals without an exponent.)
    """
    from pyspark.sql import functions as f

    scales = [max(int(scale), 38 - int(digits) + int(scale)) for digits, scale in _DECIMAL.findall(word)]
    wide = _DECIMAL.sub(lambda found: f"decimal(38,{max(int(found[2]), 38 - int(found[1]) + int(found[2]))})", word)
    read = f.from_json(whole, f"v {wide}, c string", dict(options))
    is_same = f.to_json(read.getField("v").try_cast(word).try_cast(wide)) == f.to_json(read.getField("v"))
    bare = f.regexp_replace(text, r'"(?:[^"\\]++|\\.)*+"', '""')
    is_longer = bare.rlike(f"[.][0-9]{{{min(scales)}}}[0-9]*[1-9]")
    return read.getField("v").isNull() | (is_same & ~is_longer)


def _register(spark: SparkSession) -> None:
    import sys

    from pyspark import cloudpickle

    by_value: Any = cloudpickle.register_pickle_by_value
    by_value(sys.modules[__name__])
    by_value(sys.modules[require_same_tables.__module__])
    register_source(spark, TableDataSource)
