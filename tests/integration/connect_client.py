"""A process without a JVM that works on a warehouse by a session of Spark Connect: warehouse, port, folder.

It prints one JSON object: what it saw, by name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql.connect.session import SparkSession

import rw_sql
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from rw_sql.session.attach import Question


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Client:
    """The session, and the results that it has collected, by name."""

    def __init__(self, warehouse: str, port: str, folder: Path) -> None:
        self.spark: Any = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
        self.warehouse = warehouse
        self.folder = folder
        self.attached = rw_sql.attach(self.spark, warehouse)
        self.attached.ask = None
        self.seen: dict[str, Any] = {}

    def rows(self, text: str) -> list[list[Any]]:
        return [list(row) for row in self.spark.sql(text).collect()]

    def error(self, text: str, args: dict[str, str] | None = None) -> str:
        try:
            self.spark.sql(text, args).collect()
        except SqlError as error:
            return error.render()
        raise AssertionError(f"{text} succeeded")

    def work(self) -> None:
        """The workflow of the README: source, view, pause, move, resume, drop; with blocks, schemas and errors."""
        seen, rows = self.seen, self.rows
        progress: list[str] = []
        self.attached.on_progress = lambda told: progress.append(told.job)
        folder = self.folder
        write(folder, "1.json", [{"id": i, "v": i % 3} for i in range(30)])
        seen["created"] = rows(
            f"CREATE SOURCE orders (id INT, v INT) WITH (connector = 'posix_fs', posix_fs.root = '{folder}', "
            "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
        )
        rows("CREATE MATERIALIZED VIEW sums AS SELECT v, sum(id) AS total, count(*) AS n FROM orders GROUP BY v")
        rows("FLUSH")
        seen["sums"] = rows("SELECT v, total, n FROM sums ORDER BY v")
        seen["frame"] = self.spark.table("sums").where("v = 1").count()
        seen["shown"] = [row[0] for row in rows("SHOW MATERIALIZED VIEWS")]
        seen["error"] = self.error("PAUSE SOURCE ordrs")
        seen["source"] = self.error("SELECT * FROM orders")
        seen["change"] = self.error("DELETE FROM sums WHERE v = 1")
        seen["argument"] = self.error("DELETE FROM IDENTIFIER(:t) WHERE v = 1", {"t": "sums"})
        rows("CREATE SCHEMA raw")
        rows("CREATE MATERIALIZED VIEW raw.big AS SELECT id FROM orders WHERE id >= 28")
        rows("FLUSH")
        seen["qualified"] = rows("SELECT id FROM raw.big ORDER BY id")
        rows("SET search_path = raw, public")
        seen["by argument"] = [
            [row[0] for row in self.spark.sql(text, args).sort("id").collect()]
            for text, args in (
                ("SELECT id FROM IDENTIFIER(:t)", {"t": "raw.big"}),
                ("SELECT id FROM IDENTIFIER(?)", ["raw.big"]),
            )
        ]
        seen["path"] = rows("SHOW search_path")
        seen["by path"] = rows("SELECT id FROM big ORDER BY id")
        rows("SET search_path TO DEFAULT")
        seen["catalog"] = rows("SELECT name FROM rw_catalog.rw_materialized_views ORDER BY name")
        self.unsafe()
        self.blocks()
        seen["joined"] = rows("SELECT s.n FROM sums s JOIN sums t ON s.v = t.v WHERE s.v = 0")
        seen["explained"] = [row[0] for row in rows("EXPLAIN DROP MATERIALIZED VIEW raw.big")][:1]
        rows("DROP MATERIALIZED VIEW raw.big")
        seen["dropped"] = "big" not in json.dumps(rows("SHOW MATERIALIZED VIEWS"))
        rows("CREATE SECRET word WITH (backend = 'meta') AS 'hidden value'")
        seen["secrets"] = [row[0] for row in rows("SHOW SECRETS")]

    def unsafe(self) -> None:
        """A refused, a declined and a confirmed unsafe statement."""
        rows, seen = self.rows, self.seen
        rows("ALTER SYSTEM SET enable_unsafe_ops = true")
        rows("PAUSE SOURCE orders")
        write(self.folder, "2.json", [{"id": 1000, "v": 0}])
        reset = "RESET SOURCE SPLITS orders"
        seen["unconfirmed"] = self.error(reset)
        questions: list[Question] = []

        def answer(yes: bool) -> Any:
            def ask(question: Question) -> bool:
                questions.append(question)
                return yes

            return ask

        self.attached.ask = answer(False)
        seen["declined"] = self.error(reset)
        seen["still"] = [list(row) for row in rows("SHOW SOURCE SPLITS orders")][:1] != []
        self.attached.ask = answer(True)
        seen["confirmed"] = rows(reset)
        seen["asked"] = [bool(question.preview) for question in questions]
        self.attached.ask = None
        rows("RESUME SOURCE orders")

    def blocks(self) -> None:
        """A block that is rolled back, and one that an error aborts."""
        rows, seen = self.rows, self.seen
        rows("BEGIN UNSAFE")
        states = [self.attached.block_state]
        rows("ROLLBACK")
        states.append(self.attached.block_state)
        rows("BEGIN UNSAFE")
        seen["in block"] = self.error("CREATE SCHEMA other")
        states.append(self.attached.block_state)
        rows("ROLLBACK")
        seen["block"] = [*states, self.attached.block_state]

    def notebook(self) -> None:
        """``%%rw`` in a notebook whose ``spark`` is this session."""
        from IPython.core.interactiveshell import InteractiveShell

        from rw_sql.magics.cell import StatementMagic

        shell = InteractiveShell.instance()
        shell.user_ns["spark"] = self.spark
        found = StatementMagic(shell).run("", "SHOW SOURCES;\nSELECT count(*) AS n FROM sums")
        self.seen["cell"] = [list(row) for row in found.df.collect()] if found is not None else None

    def finish(self) -> None:
        self.seen["has JVM"] = SparkContext._gateway is not None
        print(json.dumps(self.seen), flush=True)


def main(warehouse: str, port: str, folder: str) -> None:
    client = Client(warehouse, port, Path(folder))
    client.work()
    client.notebook()
    client.finish()
    for line in sys.stdin:
        if line.strip() == "without owner":
            client.seen = {"missing": client.error("SHOW SOURCES"), "read": client.rows("SELECT count(*) FROM sums")}
            rw_sql.detach(client.spark)
            client.seen["detached"] = client.spark.catalog.tableExists("sums")
            client.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
