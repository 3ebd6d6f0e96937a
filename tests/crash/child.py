"""A process of the workflow. The process continues from the state in the catalog, and is killed at a fault point if its
task names one.

Run as ``python -m tests.crash.child <json>``. The process exchanges JSON lines with its parent over the inherited
socket ``channel``. Only the parent produces records, so that the content of the upstream does not depend on the time of
the kill.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, NoReturn

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import rw_sql
from rw_sql.metastore import Metastore
from rw_sql.runtime.jobs import arrow_batches
from rw_sql.runtime.observe import upstream_watcher
from rw_sql.runtime.support import faults
from tests.crash.scenario import SOURCE_ID, STEPS, Flush, Grow, Produce, Say, Step, first_step
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS

EXIT_NOT_REACHED = 3
EXIT_NOTICED = 75

SPARK_APPEND = "spark.append_in_flight"
_DISCOVERY_SECONDS = 1.0
_LOOK_SECONDS = 0.002


class Child:
    """One process of the workflow."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.warehouse: str = task["warehouse"]
        self.kill: dict[str, Any] | None = task["kill"]
        self.channel = socket.socket(fileno=task["channel"]).makefile("rw", encoding="utf-8")
        self.telling = threading.Lock()
        self.is_armed = False
        self.born = time.monotonic()

    def tell(self, **message: object) -> None:
        """Sends a message to the parent, from any thread."""
        with self.telling:
            self.channel.write(json.dumps(message) + "\n")
            self.channel.flush()

    def ask(self, **message: object) -> None:
        """Sends a request to the parent and waits until it is done."""
        self.tell(**message)
        self.channel.readline()

    def run(self) -> None:
        """Runs the workflow to its end, or up to the kill."""
        if self.kill is not None and self.kill["step"] < 0:
            self.arm()
        spark = self.connect()
        try:
            self.go_on(spark)
        except (rw_sql.SqlError, Py4JError, PySparkException) as error:
            self.notice(spark, error)
            if not self.task["reconnects"]:
                sys.exit(EXIT_NOTICED)
            self.kill, self.is_armed = None, False
            spark = self.connect()
            self.go_on(spark)
        self.dump(spark)
        if self.kill is not None:
            self.arm()
        rw_sql.detach(spark)
        spark.stop()

    def connect(self) -> SparkSession:
        """A session on the warehouse that confirms every statement."""
        spark = rw_sql.connect(self.warehouse, config=FEW_ROWS)
        rw_sql.attach(spark, self.warehouse).ask = lambda _: True
        return spark

    def go_on(self, spark: SparkSession) -> None:
        """Runs the steps that no process has completed yet."""
        if self.is_armed:
            self.wait_for_death(spark)
        operations = Metastore.open(self.warehouse).operations()
        done = sum(operation.kind != "DISCOVER SPLITS" for operation in operations)
        first = first_step(done)
        if self.kill is not None and 0 <= self.kill["step"] < first:
            print(f"the kill's place is passed: step {first} is next", flush=True)
            sys.exit(EXIT_NOT_REACHED)
        for at in range(first, len(STEPS)):
            if self.kill is not None and at >= self.kill["step"]:
                if self.is_armed and isinstance(STEPS[at], Say):
                    self.wait_for_death(spark)
                elif not self.is_armed:
                    self.arm()
            self.do(spark, STEPS[at])
        if self.is_armed:
            self.wait_for_death(spark)

    def do(self, spark: SparkSession, step: Step) -> None:
        """Runs one step."""
        print(f"{time.monotonic() - self.born:6.1f} s  {step}", flush=True)
        match step:
            case Produce():
                self.ask(produce=step.topic, ends=step.ends)
            case Flush():
                spark.sql("FLUSH")
            case Grow():
                self.ask(grow=step.topic, partitions=step.partitions)
                new = f"{self.task['topics'][step.topic]}:{step.partitions - 1}"
                metastore = Metastore.open(self.warehouse)
                while new not in metastore.snapshot().splits(f"ingest-{SOURCE_ID}"):
                    spark.sql("SHOW JOBS")
            case Say():
                self.tell(says=step.label)
                spark.sql(step.text.format(bootstrap=self.task["bootstrap"], **self.task["topics"]))

    def arm(self) -> None:
        """Arms the fault point: from now on, the process is killed when it passes this point."""
        assert self.kill is not None
        self.is_armed = True
        if self.kill["point"] == SPARK_APPEND:
            faults.arm("", self.kill["kills"], lambda name: self.tell(died_at=name))
            threading.Thread(target=self.kill_at_spark_append, daemon=True).start()
        else:
            faults.arm(self.kill["point"], self.kill["kills"], lambda name: self.tell(died_at=name))

    def kill_at_spark_append(self) -> None:
        """Kills as soon as Spark has begun to write a data file for the log, before the commit of this file."""
        folder = Path(self.warehouse) / "data" / str(SOURCE_ID)
        before = set(folder.glob("*/_rw_writing/**/*.parquet"))
        look(lambda: bool(set(folder.glob("*/_rw_writing/**/*.parquet")) - before))
        faults.kill(SPARK_APPEND)

    def wait_for_death(self, spark: SparkSession) -> None:
        """Waits for the kill of this process, or of its JVM, which a statement then detects."""
        process = gateway_process()
        try:
            process.wait(LAST_RESORT_SECONDS)
        except TimeoutExpired:
            self.tell(not_reached=True)
            sys.exit(EXIT_NOT_REACHED)
        spark.sql("SHOW JOBS")

    def notice(self, spark: SparkSession, error: Exception) -> None:
        """Records the behaviour of a process whose JVM was killed. Statements must fail at once, and the lease must be
        released."""
        try:
            status = gateway_process().wait(5)
        except TimeoutExpired:
            raise error from None
        metastore = Metastore.open(self.warehouse)

        def is_released() -> bool:
            lease = metastore.jobs.lease()
            return lease is not None and lease.is_released

        released = look(is_released)
        started = time.monotonic()
        codes = []
        for statement in ("SHOW JOBS", "FLUSH", "PAUSE ALL SOURCES"):
            try:
                spark.sql(statement)
            except rw_sql.SqlError as refused:
                codes.append(refused.code)
        self.tell(
            jvm_status=status,
            released=released,
            codes=codes,
            seconds=time.monotonic() - started,
            first=getattr(error, "code", type(error).__name__),
        )

    def dump(self, spark: SparkSession) -> None:
        """Writes the rows of the views down, as a query returns them."""
        keyed = spark.sql("SELECT k, n, total FROM per_key").collect()
        thirds = spark.sql("SELECT topic, part, off, count(*) FROM thirds GROUP BY topic, part, off").collect()
        rows = {"per_key": [list(row) for row in keyed], "thirds": [list(row) for row in thirds]}
        Path(self.task["dump"]).write_text(json.dumps(rows), encoding="utf-8")
        self.tell(dumped=True)


def gateway_process() -> Any:
    """The JVM that pyspark started."""
    return vars(SparkContext._gateway)["proc"]


def look(is_met: Callable[[], bool]) -> bool:
    """True if the condition became true within the allowed time."""
    never = threading.Event()
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while not is_met():
        if time.monotonic() > deadline:
            return False
        never.wait(_LOOK_SECONDS)
    return True


def main() -> NoReturn:
    """Runs one process of the workflow."""
    upstream_watcher.DISCOVERY_SECONDS = _DISCOVERY_SECONDS
    for limit in ("SMALL_ROWS", "LARGE_ROWS"):
        setattr(arrow_batches, limit, 0)
    Child(json.loads(sys.argv[1])).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
