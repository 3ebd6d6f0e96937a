"""Credentials of running sources and of a running sink change, and the process that changes the credentials is killed.

The parent determines whether a kill came before or after the commit. The parent then makes the broker accept only the
credentials that are valid according to the catalog. The next process can therefore read and write all records only if
every dependent uses the valid credentials.

Run as ``python -m tests.crash.rotation``, the module is one of these processes, which reads its task as JSON from
standard input.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.metastore import Metastore
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.support.ageing import Pauses
from tests.support.secured import set_scram_password
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from tests.support.secured import Secured

CONNECTION, SECRET = "ALTER CONNECTION", "ALTER SECRET"
SOURCES = ("a", "b")
BEFORE = ("statement.planned", "statement.before_commit", "metastore.before_append")
"""The fault points at which a killed process has changed nothing."""

AFTER = (
    "metastore.after_append",
    "metastore.after_objects",
    "metastore.after_fragment_splits",
    "metastore.after_source_state",
    "statement.after_commit",
    "owner.before_applied",
    "owner.after_applied",
    "reconciler.before_start",
    "reconciler.after_start",
    "ingest.before_stop",
    "ingest.after_stop",
    "ingest.after_note",
    "ingest.before_claim",
    "ingest.after_claim",
    "ingest.after_first_note",
    "fence.before",
    "fence.after",
    "ingest.after_position",
    "ingest.before_query",
    "ingest.after_query",
    "sink.before_stop",
    "sink.after_stop",
    "sink.before_claim",
    "sink.after_claim",
    "sink.before_query",
    "sink.after_query",
    "statement.applied",
    "statement.told",
)
"""The fault points at which a killed process has committed. The state of its jobs differs from point to point."""

EXIT_NOT_REACHED = 3
_ROWS = 5
_OWNER_SECONDS = 30
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationKill:
    """The altered object, and the point and the target of the kill. The target is Python alone, or Python and its
    JVM."""

    alters: str
    point: str
    kills: str = "both"


@dataclass(slots=True)
class Login:
    """The credentials that the broker accepts."""

    user: str
    secret: str
    password: str


class Rotation:
    """A warehouse with two sources and a sink on one connection, and the processes that run its jobs one after the
    other."""

    def __init__(self, folder: Path, secured: Secured, *, seed: int = 6, spark: SparkSession | None = None) -> None:
        self.folder = folder
        self.secured = secured
        self.pauses = Pauses(seed=seed)
        self.spark = spark
        self.mark = uuid.uuid4().hex[:8]
        self.topics = {name: f"{name}.{self.mark}" for name in (*SOURCES, "out")}
        self.key = base64.b64encode(os.urandom(32)).decode()
        self.produced = 0
        self.lives = 0
        for topic in self.topics.values():
            create_topic(secured.plain, topic, 1)
        self.login = self.made_login()
        set_scram_password(secured.plain, self.login.user, self.login.password)

    def made_login(self) -> Login:
        """New credentials that were never used before."""
        fresh = uuid.uuid4().hex[:8]
        return Login(user=f"user.{fresh}", secret=f"s_{fresh}", password=f"password of {fresh}")

    def run(self, kills: Sequence[RotationKill]) -> Mapping[str, int]:
        """Runs every kill, and checks after each kill that all dependents continue. Raises AssertionError."""
        for kill in kills:
            self.suffer(kill)
        self.live(None, {})
        return {"processes killed": len(kills), "rows compared": self.produced * (len(SOURCES) + 1)}

    def suffer(self, kill: RotationKill) -> None:
        """Runs one process up to its kill. Afterwards, makes the broker accept only the valid one of the two
        credentials."""
        new = self.made_login()
        changes: dict[str, Any] = {"point": kill.point, "kills": kill.kills, "user": new.user, "password": new.password}
        if kill.alters == CONNECTION:
            changes["before"] = f"CREATE SECRET {new.secret} WITH (backend = 'meta') AS '{new.password}'"
            changes["alter"] = (
                f"ALTER CONNECTION c SET (properties.sasl.username = '{new.user}', "
                f"properties.sasl.password = SECRET {new.secret})"
            )
        else:
            new.user, new.secret = self.login.user, self.login.secret
            changes |= {"user": new.user, "alter": f"ALTER SECRET {new.secret} AS '{new.password}'"}
        done = self.committed(kill.alters)
        status = self.live(kill, changes)
        assert status == -signal.SIGKILL, self.story(f"{kill}: status {status}")
        is_committed = self.committed(kill.alters) > done
        # A point of the owner may be reached at any time, for example after the previous statement.
        if not kill.point.startswith("owner."):
            assert is_committed is (kill.point in AFTER), self.story(f"{kill}: committed: {is_committed}")
        kept, gone = (new, self.login) if is_committed else (self.login, new)
        if gone.user != kept.user:
            set_scram_password(self.secured.plain, gone.user, f"nobody knows {uuid.uuid4().hex}")
        set_scram_password(self.secured.plain, kept.user, kept.password)
        self.login = kept

    def committed(self, kind: str) -> int:
        """The number of statements of a kind in the catalog."""
        if self.lives == 0:
            return 0
        return sum(each.kind == kind for each in Metastore.open(str(self.folder / "warehouse")).operations())

    def live(self, kill: RotationKill | None, changes: Mapping[str, Any]) -> int:
        """Runs one process, which reads new records, reports its rows, and then makes the given changes."""
        self.pauses.pass_over(self.folder / "warehouse")
        self.lives += 1
        ids = range(self.produced, self.produced + _ROWS)
        for name in SOURCES:
            records = [Record(value=json.dumps({"id": id_}).encode()) for id_ in ids]
            produce(self.secured.plain, self.topics[name], records)
        self.produced += _ROWS
        dump = self.folder / f"rows-{self.lives}.json"
        task = {
            "warehouse": str(self.folder / "warehouse"),
            "plain": self.secured.plain,
            "bootstrap": self.secured.by_password,
            "authority": str(self.secured.authority_file),
            "topics": self.topics,
            "login": [self.login.user, self.login.secret, self.login.password] if self.lives == 1 else None,
            "dump": str(dump),
            **changes,
        }
        here = self.spark if kill is None else None
        status = self.process(task) if here is None else self.go_on_here(here, task)
        assert dump.exists(), self.story(f"{kill}: it did not come to its rows, status {status}")
        rows = json.loads(dump.read_text(encoding="utf-8"))
        for name in SOURCES:
            assert rows[name] == list(range(self.produced)), self.story(f"{kill}: source {name} gave {rows[name]}")
        assert set(rows["out"]) == set(range(self.produced)), self.story(f"{kill}: the sink wrote {rows['out']}")
        return status

    def process(self, task: Mapping[str, Any]) -> int:
        """Runs a task in a separate process; returns its exit status."""
        with self.log().open("wb") as log:
            done = subprocess.run(
                [sys.executable, "-m", "tests.crash.rotation"],
                input=json.dumps(task).encode(),
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                env={**os.environ, KEY_VARIABLE: self.key},
                timeout=LIFE_SECONDS,
                check=False,
            )
        return done.returncode

    def go_on_here(self, spark: SparkSession, task: Mapping[str, Any]) -> int:
        """Runs a task without a kill in this process, whose Spark is already loaded."""
        self.log().write_text("the process of the test itself\n", encoding="utf-8")
        with replaced_key(self.key):
            rw_sql.attach(spark, task["warehouse"]).ask = None
            try:
                go_on(spark, task)
            finally:
                rw_sql.detach(spark)
        return os.EX_OK

    def log(self) -> Path:
        """The output of the last process."""
        return self.folder / f"life-{self.lives}.log"

    def story(self, what: str) -> str:
        """A description of the failure, with the end of the last process's output."""
        tail = self.log().read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        return "\n".join([what, f"(process {self.lives} of {self.folder})", *tail])


def create(spark: Any, task: Mapping[str, Any]) -> None:
    """Creates the connection, the sources, the views and the sink."""
    user, secret, password = task["login"]
    topics = task["topics"]
    statements = [
        f"CREATE SECRET {secret} WITH (backend = 'meta') AS '{password}'",
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{task['bootstrap']}',"
        " properties.security.protocol = 'sasl_ssl', properties.sasl.mechanism = 'SCRAM-SHA-512',"
        f" properties.sasl.username = '{user}', properties.sasl.password = SECRET {secret},"
        f" properties.ssl.ca.location = '{task['authority']}')",
    ]
    for name in SOURCES:
        statements += [
            f"CREATE SOURCE {name} (id INT) WITH (connector = 'kafka', connection = c, topic = '{topics[name]}')"
            " FORMAT PLAIN ENCODE JSON",
            f"CREATE MATERIALIZED VIEW v{name} AS SELECT id FROM {name}",
        ]
    statements.append(
        f"CREATE SINK k FROM va WITH (connector = 'kafka', connection = c, topic = '{topics['out']}')"
        " FORMAT PLAIN ENCODE JSON"
    )
    for statement in statements:
        spark.sql(statement)


@contextmanager
def replaced_key(key: str) -> Iterator[None]:
    """A context manager that replaces this process's key of the secrets."""
    before = os.environ.get(KEY_VARIABLE)
    os.environ[KEY_VARIABLE] = key
    try:
        yield
    finally:
        del os.environ[KEY_VARIABLE]
        if before is not None:
            os.environ[KEY_VARIABLE] = before


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates all objects if this is the first process. Writes the rows of the views and of the sink's topic down once
    all records are read."""
    from tests.integration.test_live_sinks import consumed

    if task["login"] is not None:
        create(spark, task)
    spark.sql("SET statement_timeout = '120s'")
    spark.sql("FLUSH")
    rows = {name: sorted(row.id for row in spark.sql(f"SELECT id FROM v{name}").collect()) for name in SOURCES}
    rows["out"] = [value["id"] for _, value in consumed(task["plain"], task["topics"]["out"])]
    Path(task["dump"]).write_text(json.dumps(rows), encoding="utf-8")


def main() -> None:
    """Runs one process, up to its kill if the task contains a kill."""
    from rw_sql.runtime.support import faults
    from tests.support.spark_settings import FEW_ROWS

    task = json.loads(sys.stdin.read())
    spark = rw_sql.connect(task["warehouse"], config=FEW_ROWS)
    go_on(spark, task)
    if "alter" not in task:
        rw_sql.detach(spark)
        spark.stop()
        return
    if "before" in task:
        spark.sql(task["before"])
    set_scram_password(task["plain"], task["user"], task["password"])
    faults.arm(task["point"], task["kills"])
    spark.sql(task["alter"])
    if task["point"].startswith("owner."):
        # The statement returns once its jobs use the change. The owner may record this later.
        time.sleep(_OWNER_SECONDS)
    print(f"{task['point']} was not passed", flush=True)
    os._exit(EXIT_NOT_REACHED)


if __name__ == "__main__":
    main()
