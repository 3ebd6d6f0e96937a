"""Which commits of a captured database's log one of its tables has to read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.observe.commit_numbers import LogReading
from rw_sql.runtime.observe.lag import LOOK_SECONDS, _rows_after
from rw_sql.runtime.positions import high_water
from rw_sql.runtime.positions.high_water import last_data_version
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.runtime.jobs.context import Context

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "table_name", "type": "string", "nullable": True, "metadata": {}}]}
)


class Log:
    """A log of the changes of several tables."""

    def __init__(self, path: Path) -> None:
        self.output = JobOutput.open(Warehouse.at(str(path)), str(path / "log"), SCHEMA, job="ingest-1", run=1, epoch=1)
        self.context = cast("Context", SimpleNamespace(warehouse=self.output.warehouse, made={}))
        self.batch = 0

    def commit(self, *tables: str, is_counted: bool = True) -> int:
        """Commits a row of each table; returns the version."""
        self.output.rows = dict.fromkeys(tables, 1) if is_counted else None
        self.output.append_rows(pa.table({"table_name": list(tables)}), self.batch)
        self.batch += 1
        return self.output.table.version()

    def newest(self, upstream: str | None = None) -> int:
        """The newest version that a reader must have read."""
        return last_data_version(self.context, self.output.path, upstream=upstream)


def test_a_table_needs_the_newest_commit_with_rows_of_its_own(tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert log.newest("own") == -1
    own = log.commit("own", "other")
    other = log.commit("other")
    assert (log.newest("own"), log.newest("other"), log.newest()) == (own, other, other)
    unknown = log.commit("other", is_counted=False)  # as an earlier version committed
    assert log.newest("own") == log.newest() == unknown


def test_after_many_commits_of_others_it_needs_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(high_water, "_MOST_OTHERS", 3)
    log = Log(tmp_path)
    own = log.commit("own")
    for _ in range(3):
        log.commit("other")
    assert log.newest("own") == own
    last = log.commit("other")
    assert log.newest("own") == last


def test_a_table_is_behind_by_its_own_rows(tmp_path: Path) -> None:
    log = Log(tmp_path)
    first = log.commit("own", "own2")
    log.commit("other")
    log.commit("other", "own")
    reached = {table_id(log.output.warehouse, log.output.path): first + 1}
    reading = LogReading(log.context, LOOK_SECONDS)
    assert _rows_after(reading, log.output.path, reached, "own").records == 1
    assert _rows_after(reading, log.output.path, reached).records == 3
