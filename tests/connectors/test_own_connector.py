"""The connector in ``examples/own_connector``, installed as pip does it: found by its entry point. Without Spark."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.spec import check_option_values
from rw_sql.connectors.support.pickled import frozen, thawed
from rw_sql.connectors.support.range_stream import RangeStreamReader
from tests.support.own_package import installed

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


def test_it_reads_what_there_is_and_what_is_added(sqlite: PythonConnector, database: Path) -> None:
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


def test_what_is_not_there_is_told(sqlite: PythonConnector, database: Path, tmp_path: Path) -> None:
    assert sqlite.look({"sqlite.file": str(database), "sqlite.tables": "clicks, views"}).missing == ("views",)
    assert sqlite.look({"sqlite.file": f"{tmp_path}/none.db", "sqlite.tables": "clicks"}).error is not None


def test_a_stream_of_it_looks_again(sqlite: PythonConnector, database: Path, tmp_path: Path) -> None:
    plan = {
        "connector": frozen(sqlite),
        "options": {"sqlite.file": str(database), "sqlite.tables": "clicks"},
        "most_offsets": 10,
        "poll_seconds": 0.0,
        "positions": {"clicks": {"offset": 1, "cluster": None, "incarnation": None}},
        "left": [],
    }
    (tmp_path / "plan").write_text(json.dumps(plan))
    reader = RangeStreamReader({"plan": str(tmp_path / "plan")})
    limit = ReadAllAvailable()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["ranges"] == {"clicks": [1, 3]}
    assert reader.latestOffset(first, limit) == first
    with closing(sqlite3.connect(database)) as changed:
        changed.execute("INSERT INTO clicks VALUES ('home', 3)")
        changed.commit()
    assert reader.latestOffset(first, limit)["ranges"] == {"clicks": [3, 4]}


def test_spark_s_processes_need_not_have_it_on_their_path(
    sqlite: PythonConnector, database: Path, tmp_path: Path
) -> None:
    text = frozen(sqlite)
    del sys.modules["rw_sqlite"]
    sys.path.remove(str(tmp_path / "site"))
    made = thawed(text)
    assert [one.offset for one in made.records({"sqlite.file": str(database)}, "clicks", 0, 9)] == [1, 2]


def test_a_stream_that_asks_nothing_more_needs_no_package_at_all(tmp_path: Path) -> None:
    sender = """
import sys
from pyspark import cloudpickle
from rw_sql.connectors.support import pickled, range_stream
for module in (pickled, range_stream):
    cloudpickle.register_pickle_by_value(module)
sys.stdout.buffer.write(cloudpickle.dumps(range_stream.RangeDataSource({"plan": sys.argv[1]})))
"""
    receiver = """
import sys
sys.modules["rw_sql"] = None
import pickle
reader = pickle.loads(sys.stdin.buffer.read()).streamReader(None)
print(reader.latestOffset(reader.initialOffset(), None))
"""
    plan = {"connector": "", "options": {}, "most_offsets": 10, "poll_seconds": None, "positions": {}}
    (tmp_path / "plan").write_text(json.dumps({**plan, "left": [["clicks", 1, 3, False]]}))
    sent = subprocess.run([sys.executable, "-c", sender, str(tmp_path / "plan")], capture_output=True, check=True)
    done = subprocess.run([sys.executable, "-c", receiver], input=sent.stdout, capture_output=True, check=False)
    assert done.stdout.decode().strip() == "{'batch': 1, 'ranges': {'clicks': [1, 3]}}", done.stderr.decode()
