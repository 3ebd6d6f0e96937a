"""A session whose executors run on a standalone cluster. Each such session needs a separate process, because a process
has only one Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rw_sql
from tests.integration.attached import AttachedSession, wait_until
from tests.integration.cluster import Cluster
from tests.support.java import java_options
from tests.support.waits import LIFE_SECONDS

WORKERS = ("first", "second")
_ROOT = Path(__file__).parents[2]


@contextmanager
def session_on_cluster(folder: Path) -> Iterator[tuple[AttachedSession, Cluster]]:
    """A context manager that starts a cluster of two workers, each with one executor of one core. The session runs the
    jobs of a new warehouse on this cluster."""
    (folder / "cluster").mkdir()
    with Cluster(folder / "cluster") as cluster:
        for name in WORKERS:
            cluster.add_worker(name)
        cluster.wait_for_workers(*WORKERS)
        spark = rw_sql.connect(
            str(folder / "warehouse"),
            config={
                "spark.master": cluster.master,
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": java_options(),
                "spark.executor.memory": "900m",
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.ui.enabled": "false",
            },
        )
        session = AttachedSession(spark, str(folder / "warehouse"))
        session.run("SET statement_timeout = '900s'")
        try:
            wait_until(lambda: all(map(cluster.executors, WORKERS)), "each worker has an executor")
            yield session, cluster
        finally:
            session.detach()
            spark.stop()


def run_in_child(module: str, task: Mapping[str, object], seconds: float = LIFE_SECONDS) -> dict[str, Any]:
    """Runs a module in a new process, with the task as JSON on standard input. Returns the JSON object in the last line
    of the process's output. If the process fails, raises AssertionError with the end of its log."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(task),
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-8000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))
