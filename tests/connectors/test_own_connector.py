"""The connector in ``examples/own_connector``, installed as pip does it: found by its entry point. Without Spark."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.spec import check_option_values
from rw_sql.connectors.support.pickled import frozen, thawed
from tests.support.own_package import installed
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.connectors.ranged import PythonConnector


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[PythonConnector]:
    """The connector, on the path of this process."""
    with installed(tmp_path / "site") as found:
        yield found


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE clicks (page TEXT, at INT)")
        made.executemany("INSERT INTO clicks VALUES (?, ?)", [("home", 1), ("help", 2)])
        made.commit()
    return path


def test_the_connector_reads_existing_and_added_rows(sqlite: PythonConnector, database: Path) -> None:
    options = {"sqlite.file": str(database), "sqlite.tables": "clicks"}
    check_option_values(sqlite.spec, options)
    seen = sqlite.look(options).splits["clicks"]
    assert (seen.start, seen.end) == (1, 3)
    assert sqlite.start_offset(options, seen, {}) == 1
    assert sqlite.start_offset({**options, "scan.startup.mode": "latest"}, seen, {}) == 3
    records = list(sqlite.records(options, "clicks", 2, 3))
    assert [(record.offset, json.loads(record.value or b"")) for record in records] == [(2, {"page": "help", "at": 2})]
    with closing(sqlite3.connect(database)) as changed:
        changed.execute("INSERT INTO clicks VALUES ('home', 3)")
        changed.commit()
    positions = {"clicks": SplitState(split="clicks", offset=3)}
    assert [(left.start, left.end) for left in sqlite.stretches(options, positions)] == [(3, 4)]


def test_what_is_not_there_is_reported(sqlite: PythonConnector, database: Path, tmp_path: Path) -> None:
    assert sqlite.look({"sqlite.file": str(database), "sqlite.tables": "clicks, views"}).missing == ("views",)
    assert sqlite.look({"sqlite.file": f"{tmp_path}/none.db", "sqlite.tables": "clicks"}).error is not None


def test_a_stream_of_it_looks_again(sqlite: PythonConnector, database: Path) -> None:
    options = {"sqlite.file": str(database), "sqlite.tables": "clicks"}
    sqlite.poll_seconds = 0.01
    feed = sqlite.range_feed(options, {"clicks": SplitState(split="clicks", offset=1)}, max_records=10)
    entries: list[str] = []
    feed.begin(lambda: entries.append(str(len(entries))))
    assert feed.take(entries[-1]) == {"clicks": (1, 3)}
    with closing(sqlite3.connect(database)) as changed:
        changed.execute("INSERT INTO clicks VALUES ('home', 3)")
        changed.commit()
    wait_until(lambda: len(entries) == 2, "it has looked again")
    assert feed.take(entries[-1]) == {"clicks": (3, 4)}
    feed.close()


def test_spark_s_processes_need_not_have_it_on_their_path(
    sqlite: PythonConnector, database: Path, tmp_path: Path
) -> None:
    text = frozen(sqlite)
    del sys.modules["rw_sqlite"]
    sys.path.remove(str(tmp_path / "site"))
    made = thawed(text)
    assert [one.offset for one in made.records({"sqlite.file": str(database)}, "clicks", 0, 9)] == [1, 2]
