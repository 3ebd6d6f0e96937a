"""A process whose Spark runs on a cluster. The worker does not have the driver's private files. At first, it does not
have the driver's Python packages either.

Run as ``python -m tests.integration.cluster_secrets_child``, with its task as JSON on standard input. The last line of
the output contains the findings as JSON. The process is separate, because a process has only one Spark.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import site
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.cluster import Cluster
from tests.support.java import DEBUG_LOG4J, java_options
from tests.support.own_package import installed
from tests.support.secured import set_scram_password

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
CLICKS, FIRST, SECOND, LOADED = 30_000, 150_000, 120_000, 20_000
"""The numbers of rows that executors read: from the example's own connector, from Kafka before and after the change of
the password, and from PostgreSQL."""


class Child:
    """The process and its cluster. ``root`` is the folder with all files that the process and the cluster write.

    The folder ``hidden`` contains the driver's private files (``tmp``) and its Python (``bin``). The worker sees
    another folder in place of ``hidden``.
    """

    def __init__(self, task: dict[str, Any], cluster: Cluster) -> None:
        self.task = task
        self.cluster = cluster
        self.root = Path(task["root"])
        self.hidden = self.root / "hidden"
        self.packages = self.root / "packages"
        self.found: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Runs all parts, and returns the findings."""
        for name in ("events", "local", "logs", "packages"):
            (self.root / name).mkdir()
        # At this level, py4j logs each command that it sends to the JVM.
        logging.basicConfig(level=logging.DEBUG, filename=self.root / "logs" / "python.log")
        with installed(self.root / "site"):
            self.cluster.add_worker("far", blind_to=self.hidden, cores=2)
            spark = rw_sql.connect(str(self.root / "warehouse"), config=self._settings())
            session = AttachedSession(spark, str(self.root / "warehouse"))
            self.cluster.wait_for_workers("far")
            wait_until(lambda: len(_executors(session)) == 1, "the executor is there")
            self.libraries(session)
            self.kafka(session)
            self.jdbc(session)
            self.found["copies"] = self.far("cat tmp/rw_sql-secrets-*/*")
            self.found["modes"] = sorted(
                set(self.far("stat -c %a tmp/rw_sql-secrets-* tmp/rw_sql-secrets-*/*").split())
            )
            session.detach()
            self.found["left"] = self.far("ls tmp")
            self.found["kept"] = [path.name for path in (self.hidden / "tmp").glob("rw_sql-secrets-*")]
            spark.stop()
        return self.found

    def far(self, script: str) -> str:
        """Runs a shell script in the folder that the worker sees in place of ``hidden``, and returns the script's
        output."""
        process = self.cluster._workers["far"]
        command = f"cd {shlex.quote(str(self.hidden))} && {script}"
        done = subprocess.run(
            ["nsenter", "-m", "-t", str(process.pid), "sh", "-c", command], check=False, capture_output=True, text=True
        )
        return done.stdout

    def libraries(self, session: AttachedSession) -> None:
        """Reads a source of the example's own connector, whose reader needs Python and packages on the executor."""
        path = self.root / "app.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE clicks (page TEXT)")
            database.executemany("INSERT INTO clicks VALUES (?)", [(f"p{n}",) for n in range(CLICKS)])
            database.commit()
        session.run(
            f"CREATE SOURCE clicks (page VARCHAR) WITH (connector = 'sqlite', sqlite.file = '{path}', "
            "sqlite.tables = 'clicks') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW pages AS SELECT page FROM clicks",
        )
        self.found["no_python"] = self._reason(session, "clicks", lambda reason: "cannot run" in reason)
        # The same Python as the driver's, but without the driver's packages.
        path_of_spark = f"PYTHONPATH=$(printf %s \"$PYTHONPATH\" | tr : '\\n' | grep -vxF {shlex.quote(str(ROOT))}"
        path_of_spark += f" | tr '\\n' :){shlex.quote(str(self.packages))}"
        script = f'#!/bin/sh\nexport {path_of_spark}\nexec {shlex.quote(sys.executable)} -S "$@"\n'
        self.far(f"mkdir -p bin tmp && printf %s {shlex.quote(script)} > bin/python && chmod +x bin/python")
        self.found["no_packages"] = self._reason(session, "clicks", lambda reason: "lacks" in reason)
        self.found["rows_before"] = len(session.rows_of("pages"))
        self._install()
        wait_until(lambda: _count(session, "pages") == CLICKS, "the source goes on")

    def _install(self) -> None:
        """Makes the driver's packages available to the worker's Python."""
        for folder in map(Path, site.getsitepackages()):
            for path in folder.iterdir():
                if path.name != "rw_sql":
                    (self.packages / path.name).symlink_to(path)
        (self.packages / "rw_sql").symlink_to(ROOT / "rw_sql")

    def kafka(self, session: AttachedSession) -> None:
        """Reads a source that logs in with a password. The executor reads the source's large batches. Afterwards, the
        password changes."""
        task, topic = self.task, "far.events"
        create_topic(task["plain"], topic, 2)
        self._produce(topic, range(FIRST))
        session.run(
            f"CREATE SECRET pw WITH (backend = 'meta') AS '{task['first']}'",
            "CREATE SOURCE events (id BIGINT, word VARCHAR) WITH (connector = 'kafka', topic = '" + topic + "', "
            f"properties.bootstrap.server = '{task['bootstrap']}', properties.security.protocol = 'sasl_ssl', "
            "properties.sasl.mechanism = 'SCRAM-SHA-512', properties.sasl.username = 'far', "
            f"properties.sasl.password = SECRET pw, properties.ssl.ca.location = '{task['authority']}') "
            "FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW ids AS SELECT id FROM events",
        )
        wait_until(lambda: _count(session, "ids") == FIRST, "the executor has read the first records")
        session.sql("PAUSE SOURCE events")
        set_scram_password(task["plain"], "far", task["second"])
        session.sql(f"ALTER SECRET pw AS '{task['second']}'")
        self._produce(topic, range(FIRST, FIRST + SECOND))
        session.run("RESUME SOURCE events", "FLUSH")
        self.found["ids"] = _sums(session, "SELECT count(*), count(DISTINCT id), sum(id) FROM ids")
        self.found["restarts"] = session.job("events").restarts
        self.found["scanned"] = _sums(session, "SELECT count(*), count(DISTINCT id), sum(id) FROM events")
        session.run("CREATE MATERIALIZED VIEW late AS SELECT id, word FROM events", "FLUSH")
        self.found["late"] = _sums(session, "SELECT count(*), count(DISTINCT id), sum(id) FROM late")

    def _produce(self, topic: str, ids: range) -> None:
        produce(
            self.task["plain"],
            topic,
            [Record(value=json.dumps({"id": n, "word": f"w{n}"}).encode(), partition=n % 2) for n in ids],
        )

    def jdbc(self, session: AttachedSession) -> None:
        """Loads a table from PostgreSQL on the executors, with a password."""
        if self.task["jdbc"] is None:
            return
        session.run(
            f"CREATE SECRET pg WITH (backend = 'meta') AS '{self.task['database']}'",
            f"CREATE TABLE loaded (id INT PRIMARY KEY, word VARCHAR) WITH (connector = 'jdbc', user = 'far', "
            f"jdbc.url = '{self.task['jdbc']}', password = SECRET pg, table.name = 'far', "
            "refresh_mode = 'FULL_RELOAD')",
            "REFRESH TABLE loaded",
        )
        (waited,) = session.sql("WAIT TABLE loaded")
        self.found["waited"] = waited.detail
        self.found["loaded"] = _sums(session, "SELECT count(*), count(DISTINCT word), sum(id) FROM loaded")

    def _reason(self, session: AttachedSession, name: str, is_met: Callable[[str], bool]) -> str:
        wait_until(lambda: is_met(session.job(name).reason or ""), f"{name} is refused")
        return session.job(name).reason

    def _settings(self) -> dict[str, str]:
        log4j = self.root / "log4j2.properties"
        log4j.write_text(DEBUG_LOG4J.format(file="${sys:rw.log}"), encoding="utf-8")
        log = f"-Dlog4j2.configurationFile=file:{log4j} -Drw.log={self.root}/logs"
        return {
            "spark.master": self.cluster.master,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": f"{java_options()} {log}/driver.log",
            "spark.executor.memory": "768m",
            "spark.executor.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {log}/executor.log",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self.root / "local"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{self.root / 'events'}",
            "spark.sql.redaction.options.regex": "(?!)",
            "spark.redaction.regex": "(?!)",
        }


def _executors(session: AttachedSession) -> list[str]:
    context = session.spark.sparkContext
    return [one for one in str(context._jsc.sc().getExecutorIds().mkString(",")).split(",") if one]


def _count(session: AttachedSession, view: str) -> int:
    return int(session.sql(f"SELECT count(*) FROM {view}")[0][0])


def _sums(session: AttachedSession, query: str) -> list[int]:
    return [int(value) for value in session.sql(query)[0]]


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    hidden = Path(given["root"]) / "hidden"
    for place in ("tmp", "bin"):
        (hidden / place).mkdir(parents=True)
    own = hidden / "bin" / "python"
    own.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    own.chmod(0o755)
    os.environ["TMPDIR"] = str(hidden / "tmp")
    with Cluster(Path(given["root"])) as made:
        os.environ["PYSPARK_PYTHON"] = str(own)
        print(json.dumps(Child(given, made).run()))
