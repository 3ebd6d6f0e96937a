"""A process without a JVM that uses a warehouse through a session of Spark Connect. The arguments are the warehouse,
the port, a folder, the broker, and a topic with 40 records.

The process prints its results by name, as a JSON object. Each line of its input names a further part to run, after
which the process prints the results of this part.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql.connect.session import SparkSession

import rw_sql
from rw_sql.errors import SqlError
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.session.attach import Question


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Client:
    """The session, and the results that it has collected, by name."""

    def __init__(self, warehouse: str, port: str, folder: Path, bootstrap: str, topic: str) -> None:
        self.url = f"sc://localhost:{port}"
        self.warehouse = warehouse
        self.folder = folder
        self.topic = f"connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{bootstrap}'"
        self.seen: dict[str, Any] = {}
        self.begin_session()

    def begin_session(self) -> None:
        """Creates and attaches another session."""
        self.spark: Any = SparkSession.builder.remote(self.url).create()
        self.attached = rw_sql.attach(self.spark, self.warehouse)
        self.attached.ask = None

    def rows(self, text: str) -> list[list[Any]]:
        return [list(row) for row in self.spark.sql(text).collect()]

    def error(self, text: str, args: dict[str, str] | None = None) -> str:
        try:
            self.spark.sql(text, args).collect()
        except SqlError as error:
            return error.render()
        raise AssertionError(f"{text} succeeded")

    def work(self) -> None:
        """Runs a workflow like the README's: source, view, pause, unsafe statement, resume and drop, with blocks,
        schemas and errors."""
        seen, rows = self.seen, self.rows
        folder = self.folder
        empty = self.spark.sql("SHOW SINKS")
        seen["empty"] = [empty.columns[:1], rows("SHOW SINKS"), rows("SHOW SOURCES LIKE 'x'"), empty.count()]
        write(folder, "1.json", [{"id": i, "v": i % 3} for i in range(30)])
        seen["created"] = rows(
            f"CREATE SOURCE orders (id INT, v INT) WITH (connector = 'posix_fs', posix_fs.root = '{folder}', "
            "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
        )
        rows("CREATE MATERIALIZED VIEW sums AS SELECT v, sum(id) AS total, count(*) AS n FROM orders GROUP BY v")
        rows("FLUSH")
        seen["sums"] = rows("SELECT v, total, n FROM sums ORDER BY v")
        self.progress()
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
        rows("CREATE SECRET of_owner WITH (backend = 'env', name = 'OF_OWNER')")
        seen["secrets"] = sorted(row[0] for row in rows("SHOW SECRETS"))

    def progress(self) -> None:
        """Runs a slow backfill, and a statement of another thread during the backfill."""
        told: list[BackfillProgress] = []
        self.attached.on_progress = told.append
        self.rows(
            f"CREATE SOURCE flights (id INT) WITH ({self.topic}, scan.startup.mode = 'latest') FORMAT PLAIN ENCODE JSON"
        )
        create = (
            "CREATE MATERIALIZED VIEW slow WITH (scan.startup.mode = 'earliest', backfill_rate_limit = 10) AS "
            "SELECT id FROM flights"
        )
        with ThreadPoolExecutor(1) as threads:
            created = threads.submit(self.rows, create)
            wait_until(lambda: bool(told) or created.done(), "progress is told")
            sources = sorted(row[0] for row in self.rows("SHOW SOURCES"))
            self.seen["parallel"] = [sources, created.done()]
            self.seen["slow"] = created.result(LAST_RESORT_SECONDS)[0][:2]
        self.attached.on_progress = None
        self.seen["progress"] = [[each.job, each.phase, each.done, each.total] for each in told]
        self.seen["history"] = self.rows("SELECT count(*), min(id), max(id) FROM slow")
        self.rows("DROP MATERIALIZED VIEW slow")
        self.rows("DROP SOURCE flights")

    def unsafe(self) -> None:
        """Runs an unsafe statement three times. It is refused for lack of a confirmation, then declined, and then
        confirmed."""
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
        """Runs a block that is rolled back, and a block that an error aborts."""
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
        """Runs ``%%rw`` in a notebook whose variable ``spark`` is this session."""
        from IPython.core.interactiveshell import InteractiveShell

        from rw_sql.magics.cell import StatementMagic

        shell = InteractiveShell.instance()
        shell.user_ns["spark"] = self.spark
        found = StatementMagic(shell).run("", "SHOW SOURCES;\nSELECT count(*) AS n FROM sums")
        self.seen["cell"] = [list(row) for row in found.df.collect()] if found is not None else None

    def forgotten(self) -> None:
        """Runs a statement after the server has forgotten the session, and a statement during which the server forgets
        the session."""
        self.spark.client.release_session()
        self.seen["before"] = self.error("CREATE SCHEMA before")
        self.begin_session()
        runtime: Any = self.attached._runtime
        run = runtime.run

        def run_and_forget(*given: Any) -> Any:
            table = run(*given)
            self.spark.client.release_session()
            return table

        runtime.run = run_and_forget
        self.seen["after"] = self.error("CREATE SCHEMA after")
        self.begin_session()
        self.seen["schemas"] = [row[0] for row in self.rows("SHOW SCHEMAS")]

    def restarted(self) -> None:
        """Reads and changes views on a server that was restarted, and that shows the views itself."""
        self.seen["ended"] = self.error("SHOW SOURCES")
        other = SparkSession.builder.remote(self.url).create()
        wait_until(lambda: other.catalog.tableExists("default.sums"), "the server shows the view")
        self.begin_session()
        rows = self.rows
        self.seen["read"] = rows("SELECT sum(n) FROM sums")
        rows("REBUILD MATERIALIZED VIEW sums")
        rows("WAIT")
        write(self.folder, "3.json", [{"id": i, "v": 1} for i in range(2000, 2010)])
        rows("FLUSH")
        self.seen["rebuilt"] = [rows("SELECT sum(n) FROM sums"), rows("SELECT sum(n) FROM default.sums")]
        self.seen["change"] = [self.error("DROP VIEW sums"), self.error("DROP VIEW default.sums")]
        rows("DROP MATERIALIZED VIEW sums")
        try:
            self.seen["dropped"] = rows("SELECT * FROM sums")
        except AnalysisException as error:
            self.seen["dropped"] = error.getCondition()
        rows("CREATE MATERIALIZED VIEW sums AS SELECT v, count(*) AS n FROM orders GROUP BY v")

    def finish(self) -> None:
        self.seen["has JVM"] = SparkContext._gateway is not None
        print(json.dumps(self.seen), flush=True)


def main(warehouse: str, port: str, folder: str, bootstrap: str, topic: str) -> None:
    client = Client(warehouse, port, Path(folder), bootstrap, topic)
    client.work()
    client.notebook()
    client.finish()
    for line in sys.stdin:
        client.seen = {}
        if line.strip() == "forgotten":
            client.forgotten()
        elif line.strip() == "restarted":
            client.restarted()
        else:
            client.seen = {"missing": client.error("SHOW SOURCES"), "read": client.rows("SELECT count(*) FROM sums")}
            rw_sql.detach(client.spark)
            client.seen["detached"] = client.spark.catalog.tableExists("sums")
        client.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
