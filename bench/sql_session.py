"""A process with a warehouse of rw_sql, which runs statements for a case.

``python -m bench.sql_session <folder>`` runs the statements of its input, one per line, and prints their rows as JSON.
An input line ``export <file> <query>`` writes the rows of a query to a Parquet file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

from bench.streaming import SETTINGS, Child, Watched, child, write_to_parent

if TYPE_CHECKING:
    import pyarrow as pa


def _run(folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    write_to_parent("ready")
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        if command == "export":
            file, _, query = rest.partition(" ")
            pyarrow.parquet.write_table(spark.sql(query).toArrow(), file)
            write_to_parent("[]")
        else:
            write_to_parent(json.dumps([list(row) for row in spark.sql(line).collect()], default=str))


@dataclass(slots=True)
class SqlSession:
    """The process that runs the statements, and the folder of its warehouse."""

    child: Child
    folder: Path

    def run(self, *statements: str) -> list[list[Any]]:
        """Runs statements, and returns the rows of the last one."""
        rows: list[list[Any]] = []
        for statement in statements:
            self.child.write_line(statement)
            rows = json.loads(self.child.read_line())
        return rows

    def rows(self, query: str) -> pa.Table:
        """The rows of a query with possibly many rows, which are passed through a Parquet file."""
        file = self.folder.with_suffix(".parquet")
        self.child.write_line(f"export {file} {query}")
        self.child.read_line()
        return pyarrow.parquet.read_table(file)

    def watched(self, view: str, name: str) -> Watched:
        """The Delta table of an object that a view of ``rw_catalog`` lists."""
        ((id_,),) = self.run(f"SELECT id FROM rw_catalog.{view} WHERE name = '{name}'")
        return Watched(f"{self.folder}/data/{id_}/1")


@contextmanager
def sql_session(folder: Path) -> Iterator[SqlSession]:
    """A process that is ready for statements, with an empty warehouse."""
    with child("bench.sql_session", str(folder)) as process:
        assert process.read_line() == "ready"
        yield SqlSession(process, folder)


if __name__ == "__main__":
    _run(sys.argv[1])
