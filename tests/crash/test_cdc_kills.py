"""A process that follows a database is killed between the steps of a batch: each change is in the log once."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.crash.cdc_child import TABLES
from tests.crash.lives import Lives
from tests.support.ageing import Pauses
from tests.support.postgres import PASSWORD
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.long, pytest.mark.postgres]

POINTS = ("ingest.before_slot", "ingest.after_slot", "batch.before_append@2", "ingest.before_acknowledge@2")
"""Before and after the slot is made; before a batch is committed; after that, and before it is acknowledged."""


def test_each_change_is_in_the_log_once(spark: SparkSession, postgres: PostgresInfo, tmp_path: Path) -> None:
    word = uuid.uuid4().hex[:8]
    schema, slot = f"k_{word}", f"slot_{word}"
    postgres.run(f"CREATE SCHEMA {schema}")
    for name in TABLES:
        postgres.run(f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, word TEXT)")
        postgres.run(f"INSERT INTO {schema}.{name} SELECT g, '{name}' || g FROM generate_series(1, 40) g")
    password, dump = tmp_path / "password", tmp_path / "changes"
    password.write_text(PASSWORD)
    lives = Lives(
        module="tests.crash.cdc_child", folder=tmp_path, seconds=LIFE_SECONDS, pauses=Pauses(seed=4), spark=spark
    )
    options = {
        "hostname": "127.0.0.1",
        "port": str(postgres.port),
        "username": postgres.user,
        "database.name": "postgres",
        "slot.name": slot,
        "publication.name": f"pub_{word}",
    }
    task = {
        "warehouse": str(tmp_path / "warehouse"),
        "options": options,
        "password": str(password),
        "schema": schema,
        "dump": str(dump),
    }
    try:
        for at, point in enumerate(POINTS):
            status = lives.live({**task, "point": point}, is_killed=True)
            assert status == -signal.SIGKILL, lives.said()
            for name in TABLES:
                # Changes of rows that no snapshot chunk of a later run reads: keys behind the snapshot's end.
                postgres.run(f"INSERT INTO {schema}.{name} VALUES ({1000 + at}, 'while dead')")
                postgres.run(f"UPDATE {schema}.{name} SET word = 'changed' WHERE id = {at + 1}")
        rows = {
            name: [list(row) for row in postgres.run(f"SELECT id, word FROM {schema}.{name} ORDER BY id")]
            for name in TABLES
        }
        assert lives.live({**task, "point": "", "rows": rows}, is_killed=False) == os.EX_OK, lives.said()
        changes = [tuple(change) for change in json.loads(dump.read_text())]
        counted = Counter(change for change in changes if change[1] in ("c", "u"))
        assert counted
        assert set(counted.values()) == {1}
    finally:
        postgres.run(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{slot}' AND active_pid IS NOT NULL"
        )
        postgres.run(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'")
        postgres.run(f"DROP SCHEMA {schema} CASCADE")
        postgres.run(f"DROP PUBLICATION IF EXISTS pub_{word}")
