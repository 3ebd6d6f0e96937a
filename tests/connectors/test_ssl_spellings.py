"""The spellings of ``ssl.mode`` that PostgreSQL and RisingWave use."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc.connection import connect
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.connectors.postgres_cdc.connection import conninfo
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from rw_sql.packages import deferred

GIVEN = {"hostname": "127.0.0.1", "port": "1", "username": "u", "database.name": "d"}
SPELLINGS = [("disable", "disabled"), ("prefer", "preferred"), (" Require ", "required")]


@pytest.mark.parametrize(("spelling", "choice"), SPELLINGS)
def test_postgresql_gets_its_own_word(spelling: str, choice: str) -> None:
    for value in (spelling, choice):
        PostgresCdcConnector().check_options(GIVEN | {"ssl.mode": value})
        assert conninfo(GIVEN | {"ssl.mode": value})["sslmode"] == spelling.strip().lower()


@pytest.mark.parametrize(("spelling", "choice"), SPELLINGS)
def test_mysql_is_asked_for_encryption_as_with_the_other_spelling(
    spelling: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, bool]] = []

    def refuse(**given: Any) -> None:
        asked.append((given.get("ssl_disabled", False), "ssl" in given))
        raise pymysql.OperationalError(2003, "SSL is not supported")

    monkeypatch.setattr(pymysql, "connect", refuse)
    monkeypatch.setattr("rw_sql.connectors.mysql_cdc.connection.pymysql", deferred("pymysql"))
    for value in (spelling, choice):
        MysqlCdcConnector().check_options(GIVEN | {"ssl.mode": value})
        with pytest.raises(CaptureError):
            connect(GIVEN | {"ssl.mode": value}, 2)
    half = len(asked) // 2
    assert asked[:half] == asked[half:] == {
        "disabled": [(True, False)], "preferred": [(False, True), (True, False)], "required": [(False, True)],
    }[choice]  # fmt: skip
