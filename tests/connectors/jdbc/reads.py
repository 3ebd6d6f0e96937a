"""Reads tables of PostgreSQL as Spark's workers would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from rw_sql.connectors.jdbc import reader as jdbc_reader
from rw_sql.connectors.jdbc.source import JdbcConnector
from rw_sql.connectors.jdbc.url import connect, conninfo
from tests.support.postgres import PASSWORD, PostgresInfo

if TYPE_CHECKING:
    import psycopg

JDBC = JdbcConnector()


def options(server: PostgresInfo, table: str, **more: str) -> dict[str, str]:
    """The options of a source that reads ``table``."""
    return {"jdbc.url": server.url, "user": "postgres", "password": PASSWORD, "table.name": table, **more}


def read_parts(
    given: dict[str, str], query: str, names: list[str], snapshot: str, parts: list[tuple[int, int]]
) -> list[tuple[Any, ...]]:
    """The rows that Spark's workers would read."""
    server = jdbc_reader._without_password(conninfo(given))
    assert given["password"] not in json.dumps(server)
    told = {
        "server": server,
        "snapshot": snapshot,
        "table": JDBC._quoted(given),
        "query": query,
        "names": names,
        "parts": parts,
    }
    made = jdbc_reader.TableReader({"given": json.dumps(told)})
    # An executor on another host does not have the driver's file.
    Path(server["password_file"]).unlink()
    pickle: Any = cloudpickle
    reader = pickle.loads(pickle.dumps(made))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def held(given: dict[str, str]) -> tuple[psycopg.Connection[Any], str]:
    """Opens a connection that keeps a snapshot open. Returns the connection and the snapshot's name."""
    import psycopg

    connection = connect(given, 8.0)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    row = connection.execute("SELECT pg_export_snapshot()").fetchone()
    assert row is not None
    return connection, str(row[0])
