"""A process with secrets that uses every feature that could reveal them, and that is killed in the middle.

Run as ``python -m tests.integration.leak_child``, with its task as JSON on standard input. The process writes its
output to files below its folder. It also writes a canary value to each place where a secret must not occur. A search
that finds the canary is known to work.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from typer.testing import CliRunner

from rw_sql.cli.main import app
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.support.java import DEBUG_LOG4J, java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGES = (
    "/jobs/",
    "/stages/",
    "/storage/",
    "/environment/",
    "/executors/",
    "/SQL/",
    "/StreamingQuery/",
    "/metrics/json/",
    "/metrics/executors/prometheus/",
    "/metrics/prometheus/",
)

MORE_THAN_A_THREAD_READS = 150_000
"""A number of records. Spark's Kafka client reads a batch of this size, and the offsets of the batch are in a
checkpoint."""


class Child:
    """The process and the folder with its output."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.root = Path(task["root"])
        self.task = task
        self.canary: str = task["canary"]
        self.answers = 0
        for name in ("logs", "events", "local", "answers", "pages", "metrics", "notebook", "status"):
            (self.root / name).mkdir()

    def connect(self) -> SparkSession:
        """A session with as much output as possible. Every log has the level DEBUG, the UI is on, and the event log is
        compressed."""
        logging.basicConfig(level=logging.DEBUG, filename=self.root / "logs" / "python.log")
        log4j = self.root / "log4j2.properties"
        log4j.write_text(DEBUG_LOG4J.format(file=self.root / "logs" / "log4j.log"), encoding="utf-8")
        import rw_sql

        return rw_sql.connect(
            str(self.root / "warehouse"),
            config={
                "spark.master": "local[2]",
                "spark.ui.enabled": "true",
                "spark.ui.port": "0",
                "spark.ui.prometheus.enabled": "true",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": f"{java_options()} "
                f"-Djava.io.tmpdir={self.root / 'tmp'} -Dlog4j2.configurationFile=file:{log4j}",
                "spark.log.level": "DEBUG",
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": f"file:{self.root / 'events'}",
                "spark.eventLog.compress": "true",
                "spark.eventLog.compression.codec": "zstd",
                "spark.local.dir": str(self.root / "local"),
                "spark.io.compression.codec": "zstd",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.redaction.options.regex": "(?!)",
                "spark.redaction.regex": "(?!)",
            },
        )

    def say(self, spark: SparkSession, *statements: str) -> None:
        """Runs statements, and writes their rows and errors to files."""
        from pyspark.errors import PySparkException

        import rw_sql

        for statement in statements:
            try:
                told = "\n".join(str(row.asDict()) for row in spark.sql(statement).collect())
            except rw_sql.SqlError as error:
                told = f"{error!r}\n{error}\n{error.__cause__!r}\n" + "\n".join(error._render_traceback_())
            except PySparkException as error:
                told = f"{error!r}\n{error}"
            self.keep("answers", told)

    def keep(self, folder: str, text: str) -> None:
        """Writes displayed text to a separate file."""
        self.answers += 1
        (self.root / folder / f"{self.answers}.txt").write_text(text, encoding="utf-8")

    def run(self) -> None:
        """Runs all parts, up to the kill."""
        spark = self.connect()
        task, canary = self.task, self.canary
        value, second, wrong, literal, *_ = task["values"]
        topic = f"leaks.{canary}"
        a = f"a_{canary}"
        create_topic(task["plain"], topic, 1)
        login = (
            f"properties.bootstrap.server = '{task['bootstrap']}', properties.security.protocol = 'sasl_ssl',"
            " properties.sasl.mechanism = 'SCRAM-SHA-512', properties.sasl.username = 'leak',"
            f" properties.ssl.ca.location = '{task['authority']}'"
        )
        self.say(
            spark,
            f"CREATE SECRET pw WITH (backend = 'meta') AS '{value}'",
            f"EXPLAIN CREATE SECRET other WITH (backend = 'meta') AS '{value}'",
            f"CREATE SECRET wrong WITH (backend = 'meta') AS '{wrong}'",
            f"CREATE CONNECTION c WITH (type = 'kafka', {login}, properties.sasl.password = SECRET pw)",
            f"CREATE CONNECTION e WITH (type = 'kafka', {login}, properties.sasl.password = SECRET wrong)",
            f"CREATE CONNECTION f WITH (type = 'kafka', {login}, properties.sasl.password = '{literal}')",
            f"CREATE CONNECTION f WITH (type = 'kafka', {login}, propertis.sasl.pw = '{literal}')",
            f"CREATE SECRET twice WITH (backend = 'meta') AS '{literal}' TWICE",
            f"CREATE SECRET vault WITH (backend = 'paper') AS '{literal}'",
            f"ALTER SECRET nothing AS '{literal}'",
            f"CREATE SOURCE {a} (id INT, name VARCHAR) WITH (connector = 'kafka', connection = c, topic = '{topic}')"
            " FORMAT PLAIN ENCODE JSON",
            f"CREATE MATERIALIZED VIEW va AS SELECT name, count(*) AS n FROM {a} GROUP BY name",
        )
        self.fill(topic, range(5))
        self.say(
            spark,
            "FLUSH",
            f"PAUSE SOURCE {a} REASON '{canary}'",
            f"RESUME SOURCE {a}",
            f"EXPLAIN ALTER SECRET pw AS '{second}'",
            f"ALTER SECRET pw AS '{wrong}'",
            "ALTER CONNECTION c SET (properties.sasl.password = SECRET wrong)",
            "EXPLAIN ALTER CONNECTION c SET (properties.client.id = 'x')",
        )
        self.rotate(second)
        self.say(spark, f"ALTER SECRET pw AS '{second}'", f"SELECT '{canary}' AS c, count(*) FROM va GROUP BY 1")
        self.fill(topic, range(5, 10))
        self.fill(topic, range(9, 10), times=MORE_THAN_A_THREAD_READS)
        self.elsewhere(spark)
        self.say(
            spark,
            "FLUSH",
            *(f"SHOW {what}" for what in ("SECRETS", "CONNECTIONS", "SOURCES", "JOBS", "UNSAFE OPERATIONS")),
            *(f"SHOW CREATE {what}" for what in ("SECRET pw", "CONNECTION c", "CONNECTION lake", "CONNECTION pg")),
            *(f"SHOW CREATE {what}" for what in (f"SOURCE {a}", "SOURCE files", "SINK out", "MATERIALIZED VIEW va")),
            f"SHOW SOURCE SPLITS {a}",
            f"DESCRIBE {a}",
            "SELECT * FROM va",
            "SELECT * FROM vf",
            "SHOW METRICS",
            *(f"SELECT * FROM rw_catalog.{view}" for view in task["views"]),
        )
        # The variable keeps the DataFrame alive, so that its files on the local disk are not removed.
        kept = spark.sql(f"SELECT c, count(*) FROM VALUES ('{canary}'), ('x') AS t (c) GROUP BY c")
        kept = kept.persist(StorageLevel.DISK_ONLY)
        kept.collect()
        logging.getLogger("tests").debug("a canary: %s", canary)
        print("a canary:", canary, flush=True)
        self.metrics(spark)
        self.notebook(spark, literal, wrong)
        self.pages(spark)
        self.crash(spark, value)

    def elsewhere(self, spark: SparkSession) -> None:
        """Uses the secrets of a bucket that is read, and of a database to which a sink writes, if there is a
        database."""
        *_, key, password = self.task["values"]
        bucket = f"s3.region = 'us-east-1', s3.endpoint = '{self.task['s3']}', s3.access.key = 'k'"
        self.say(
            spark,
            f"CREATE SECRET key WITH (backend = 'meta') AS '{key}'",
            f"CREATE SECRET pg WITH (backend = 'meta') AS '{password}'",
            f"CREATE CONNECTION lake WITH (type = 's3', {bucket}, s3.secret.key = SECRET key)",
            "CREATE SOURCE files (name VARCHAR) WITH (connector = 's3', connection = lake, s3.bucket_name = 'lake',"
            " match_pattern = '*.json') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW vf AS SELECT name FROM files",
        )
        dead = "jdbc:postgresql://127.0.0.1:1/none"
        login = "type = 'jdbc', user = 'leak', password = SECRET"
        to_table = "connector = 'jdbc', connection = pg, table.name = 'leaks', primary_key = 'name', type = 'upsert'"
        self.say(
            spark,
            f"CREATE CONNECTION pg WITH ({login} pg, jdbc.url = '{dead}')",
            f"CREATE CONNECTION pg WITH ({login} pg, jdbc.url = '{self.task['jdbc'] or dead}', VALIDATE = false)",
            f"CREATE CONNECTION pw WITH ({login} wrong, jdbc.url = '{self.task['jdbc'] or dead}')",
            f"CREATE SINK out FROM va WITH ({to_table})",
            f"ALTER CONNECTION pg SET (jdbc.url = '{dead}')",
            "FLUSH",
        )

    def metrics(self, spark: SparkSession) -> None:
        """Stores the metrics for Prometheus, the status page, and the output of ``rw-sql status`` and of similar
        commands."""
        import rw_sql
        from rw_sql.runtime.status.http_server import StatusServer

        attached = rw_sql.attach(spark, str(self.root / "warehouse"))
        port = attached.serve_metrics("127.0.0.1:0")
        server = StatusServer("127.0.0.1", 0)
        server.show(attached.served())
        page = server.url
        for address in (f"http://127.0.0.1:{port}/metrics", f"{page}metrics"):
            with urllib.request.urlopen(address, timeout=60) as answer:
                self.keep("metrics", answer.read().decode())
        for address in (page, f"{page}?limit=10000", f"{page}status.json"):
            with urllib.request.urlopen(address, timeout=60) as answer:
                self.keep("status", answer.read().decode())
        server.close()
        for words in (["status"], ["status", "-o", "json"], ["lineage", "-o", "svg"], ["source", "list"]):
            done = CliRunner().invoke(app, [*words, "-w", str(self.root / "warehouse")], catch_exceptions=False)
            self.keep("status", f"{words} {done.output}")

    def rotate(self, password: str) -> None:
        """Gives the broker's user another password."""
        from tests.support.secured import set_scram_password

        set_scram_password(self.task["plain"], "leak", password)

    def fill(self, topic: str, ids: range, *, times: int = 1) -> None:
        """Produces records that contain the canary, each record ``times`` times."""
        rows = [{"id": id_, "name": f"{self.canary} {id_}"} for id_ in ids] * times
        produce(self.task["plain"], topic, [Record(value=json.dumps(row).encode()) for row in rows])

    def notebook(self, spark: SparkSession, literal: str, wrong: str) -> None:
        """Runs cells in an IPython shell, and stores their output, results and errors."""
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance()
        shell.user_ns["spark"] = spark
        shell.run_line_magic("load_ext", "rw_sql")
        for cell in (
            "SHOW CONNECTIONS; SHOW SECRETS",
            f"SELECT '{self.canary}' AS c",
            f"CREATE SECRET again WITH (backend = 'meta') AS '{wrong}' AND MORE",
            f"ALTER SECRET pw AS '{wrong}'",
            f"CREATE CONNECTION f WITH (type = 'kafka', properties.sasl.password = '{literal}')",
        ):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                shell.run_cell(f"%%rw\n{cell}", store_history=False)
            self.keep("notebook", printed.getvalue())

    def pages(self, spark: SparkSession) -> None:
        """Stores every page of Spark's UI, the linked pages, and the answers of the UI's REST interface."""
        base = spark.sparkContext.uiWebUrl
        assert base is not None
        base = re.sub(r"//[^:/]+:", "//127.0.0.1:", base)
        application = f"/api/v1/applications/{spark.sparkContext.applicationId}"
        rest = (f"{application}/{name}" for name in ("environment", "jobs", "stages", "allexecutors"))
        todo = [*_PAGES, *rest, f"{application}/sql?details=true&planDescription=true&length=500"]
        seen: set[str] = set()
        while todo:
            page = todo.pop(0)
            if page in seen:
                continue
            seen.add(page)
            try:
                with urllib.request.urlopen(base + page, timeout=20) as answer:
                    status, text = answer.status, answer.read().decode(errors="replace")
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read().decode(errors="replace")
            self.keep("pages", f"{status} {page}\n{text}")
            for link in re.findall(r"""href="(?:https?://[^/"]+)?(/[^"#]+)""", text):
                if len(seen) + len(todo) < 60 and re.match(
                    r"/(SQL/execution|StreamingQuery/statistics|jobs/job)/", link
                ):
                    todo.append(link.replace("&amp;", "&"))

    def crash(self, spark: SparkSession, value: str) -> None:
        """Changes the secret once more. This process is killed in the middle of the change."""
        from rw_sql.runtime.support import faults

        self.rotate(value)
        faults.arm("ingest.after_query", "both")
        self.say(spark, f"ALTER SECRET pw AS '{value}'")


if __name__ == "__main__":
    Child(json.loads(sys.stdin.read())).run()
