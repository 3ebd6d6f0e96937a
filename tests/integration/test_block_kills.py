"""A session is killed at any step of a block: the block then has taken effect completely or not at all, and the source
continues to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.metastore import Metastore
from tests.crash.chain import ROOT
from tests.integration.attached import AttachedSession, produce_json, wait_until
from tests.support.ageing import HOUR, age_files
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

BEFORE = (
    "block.before_hold",
    "block.holding",
    "block.held",
    "statement.planned",
    "statement.before_commit",
    "metastore.before_append",
)
"""The points where a killed block has had no effect."""

AFTER = (
    "metastore.after_append",
    "metastore.after_objects",
    "metastore.after_source_state",
    "statement.after_commit",
    "statement.applied",
    "statement.told",
)
"""The points where the block has taken effect."""

SHORT = ("block.holding", "block.held", "metastore.before_append", "metastore.after_append", "statement.after_commit")
"""The points that the tests use; the proof uses all."""

RECORDS = 40


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
def test_all_or_none(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    kill_at(SHORT, session, broker.bootstrap, topic_name)


def kill_at(points: Sequence[str], session: AttachedSession, bootstrap: str, topic: str) -> None:
    """Runs one block per point, each killed there. Raises AssertionError if one is half done or the source does not
    continue."""
    create_topic(bootstrap, topic, 1)
    produce_json(bootstrap, topic, [{"id": at} for at in range(RECORDS)])
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )
    expected = Counter(range(RECORDS))
    end = RECORDS
    for point in points:
        assert Counter(id_ for (id_,) in session.flushed_rows_of("m")) == expected, point
        # The jobs continue on data that is an hour old by now.
        age_files(Path(session.warehouse), HOUR)
        epoch = session.epoch()
        killed = run_block(session.warehouse, point)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
        is_done = point in AFTER
        assert session.epoch() == epoch + is_done, point
        if is_done:
            expected += Counter(range(end - 5, end))
        # The source has its former state: it runs, and new records are read.
        produce_json(bootstrap, topic, [{"id": end}])
        expected[end] += 1
        end += 1
        wait_until(lambda: session.job("s").state == "RUNNING", f"the reader runs after {point}")
    assert Counter(id_ for (id_,) in session.flushed_rows_of("m")) == expected
    assert not Metastore.open(session.warehouse).snapshot().all("pause")


def run_block(warehouse: str, point: str) -> subprocess.CompletedProcess[str]:
    """The block in a separate process, which is killed at a fault point."""
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.block_child", warehouse],
        cwd=ROOT,
        env={**os.environ, "RW_SQL_FAULT": point},
        capture_output=True,
        text=True,
        timeout=LIFE_SECONDS,
        check=False,
    )
