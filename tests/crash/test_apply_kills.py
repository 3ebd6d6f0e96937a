"""``rw-sql apply`` is killed at each of its steps: the same command then continues until no difference is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.metastore import Metastore
from rw_sql.plan.statements.view.rebuild import SWAP
from rw_sql.runtime.support.faults import FAULT
from tests.crash.chain import ROOT
from tests.integration.attached import AttachedSession, produce_json
from tests.integration.processes import PROGRAM
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

KILLS = (
    # Before any change, and within the unsafe statement's block: all of its effect, or none.
    "apply.before_change",
    "metastore.before_append",
    "metastore.after_append",
    # The view that does not read the rebuilt view is not created yet; it is created.
    "apply.before_change",
    "statement.before_commit",
    "statement.after_commit",
    # The rebuild is requested and not waited for; its rows exist and do not serve; they serve.
    "statement.after_commit",
    "rebuild.before_swap",
    "rebuild.after_swap",
)
"""The points at which the processes are killed, one after the other, each continuing where the previous one ended."""

SOURCE = (
    "CREATE SOURCE s (id INT, k INT) WITH (connector = 'kafka', topic = '${TOPIC}', "
    "properties.bootstrap.server = '${BROKER}') FORMAT PLAIN ENCODE JSON;\n"
)
COUNTS = "CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k;\n"
WIDER = COUNTS.replace("count(*) AS n", "count(*) AS n, max(id) AS last")
MORE = "CREATE MATERIALIZED VIEW more AS SELECT id FROM s WHERE k = 1;\n"


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
def test_a_killed_apply_goes_on(spark: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path) -> None:
    folder, warehouse = tmp_path / "pipelines", str(tmp_path / "warehouse")
    folder.mkdir()
    moved = f"{topic_name}-moved"
    for topic, first in ((topic_name, 0), (moved, 100)):
        create_topic(broker.bootstrap, topic, 1)
        produce_json(broker.bootstrap, topic, [{"id": first + at, "k": at % 2} for at in range(20)])

    def run(command: str, topic: str, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        variables = ["--var", f"TOPIC={topic}", "--var", f"BROKER={broker.bootstrap}"]
        return subprocess.run(
            [*PROGRAM, command, str(folder), "-w", warehouse, *variables, *words],
            cwd=ROOT,
            env={**os.environ, "MASTER": "local[2]", FAULT: fault},
            capture_output=True,
            text=True,
            timeout=LIFE_SECONDS,
            check=False,
        )

    (folder / "all.sql").write_text(SOURCE + COUNTS, encoding="utf-8")
    before = AttachedSession(spark, warehouse)
    try:
        before.allow_unsafe()
        before.run(SOURCE.replace("${TOPIC}", topic_name).replace("${BROKER}", broker.bootstrap).rstrip(";\n"))
        before.run(COUNTS.rstrip(";\n"), "FLUSH")
    finally:
        before.detach()
    (folder / "all.sql").write_text(SOURCE + WIDER + MORE, encoding="utf-8")
    words = ("--yes", "--allow", "GAPS,DUPLICATES")
    for point in KILLS:
        epoch = Metastore.open(warehouse).snapshot().epoch
        killed = run("apply", moved, *words, fault=point)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
        if point in ("apply.before_change", "metastore.before_append", "statement.before_commit"):
            assert Metastore.open(warehouse).snapshot().epoch == epoch, point
    done = run("apply", moved, *words)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    left = run("diff", moved, "--exit-code")
    assert (left.returncode, left.stdout) == (0, "")
    after = AttachedSession(spark, warehouse)
    try:
        after.run("FLUSH")
        rows = after.rows_of("counts")
        assert [row[0] for row in rows] == [0, 1]
        assert {row[2] for row in rows} == {118, 119}
        assert {id_ for (id_,) in after.rows_of("more")} >= set(range(101, 120, 2))
        # The rows before are back as soon as the statement returns, without a FLUSH.
        started = time.monotonic()
        swap = next(o for o in Metastore.open(warehouse).operations() if o.kind == SWAP)
        after.run(f"UNDO OPERATION {swap.epoch}")
        columns = spark.table("counts").columns
        print(f"rolled back in {time.monotonic() - started:.2f} s")
        assert columns == ["k", "n"]
    finally:
        after.detach()
