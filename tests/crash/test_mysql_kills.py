"""A process that follows MariaDB is killed during snapshots and while it reads the log: each table equals the
server's, and each change is in the source's log once."""

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
from tests.support.mysql import PASSWORD
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.mysql import MysqlInfo

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.long, pytest.mark.mysql]

SNAPSHOT_POINTS = ("ingest.after_slot", "batch.before_append", "batch.after_append")
LOG_POINTS = ("batch.before_append", "batch.after_append", "ingest.before_acknowledge")
"""The points of the kills, in order: until the existing rows are read, and afterwards."""


def test_each_table_equals_the_server_s_and_each_change_is_in_the_log_once(
    spark: SparkSession, mariadb: MysqlInfo, tmp_path: Path
) -> None:
    database = f"k_{uuid.uuid4().hex[:8]}"
    mariadb.run(f"CREATE DATABASE {database}")
    for name in TABLES:
        mariadb.run(
            f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, word VARCHAR(40))",
            f"INSERT INTO {database}.{name} SELECT seq, CONCAT('{name}', seq) FROM {database}.seq_1_to_40",
        )
    password, dump = tmp_path / "password", tmp_path / "changes"
    password.write_text(PASSWORD)
    lives = Lives(
        module="tests.crash.cdc_child", folder=tmp_path, seconds=LIFE_SECONDS, pauses=Pauses(seed=4), spark=spark
    )
    task = {
        "warehouse": str(tmp_path / "warehouse"),
        "connector": "mysql-cdc",
        "options": {
            "hostname": "127.0.0.1",
            "port": str(mariadb.port),
            "username": mariadb.user,
            "database.name": database,
        },
        "password": str(password),
        "schema": database,
        "dump": str(dump),
    }

    def change(number: int) -> None:
        """Changes rows that no chunk of a snapshot reads later, and rows that a chunk may read."""
        for name in TABLES:
            mariadb.run(
                f"INSERT INTO {database}.{name} VALUES ({1000 + number}, 'while dead')",
                f"UPDATE {database}.{name} SET word = 'changed' WHERE id = {number + 1}",
                f"DELETE FROM {database}.{name} WHERE id = {40 - number}",
            )

    def end_equal() -> None:
        """Lets a process read until its tables equal the server's; checks that no change is in the log twice."""
        rows = {
            name: [list(row) for row in mariadb.run(f"SELECT id, word FROM {database}.{name} ORDER BY id")]
            for name in TABLES
        }
        assert lives.live({**task, "point": "", "rows": rows}, is_killed=False) == os.EX_OK, lives.said()
        changes = [tuple(each) for each in json.loads(dump.read_text())]
        counted = Counter(each for each in changes if each[1] in ("c", "u", "d"))
        assert counted
        assert set(counted.values()) == {1}

    number = 0
    try:
        for points in (SNAPSHOT_POINTS, LOG_POINTS):
            for point in points:
                status = lives.live({**task, "point": point}, is_killed=True)
                assert status == -signal.SIGKILL, lives.said()
                change(number)
                number += 1
            end_equal()
            change(number)
            number += 1
    finally:
        mariadb.run(f"DROP DATABASE {database}")
