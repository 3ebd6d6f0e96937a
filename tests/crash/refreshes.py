"""A refreshable table and views on it, in processes that are killed one after the other.

``python -m tests.crash.refreshes`` is one such process, with its task as JSON on standard input. The process continues
from the state in the catalog, and records the rows. It is killed at a fault point, or reaches the end.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from rw_sql.metastore import Metastore
from tests.crash.lives import Lives, replaced
from tests.support.ageing import Pauses
from tests.support.spark_settings import settings_for
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

POINTS = (
    "refresh.before_load",
    "refresh.compared",
    "refresh.loaded",
    "refresh.staged",
    "refresh.before_chunk",
    "batch.before_merge",
    "batch.after_merge",
    "refresh.after_chunk",
    "refresh.merged",
    "refresh.cleaned",
    "refresh.idle",
)
"""The fault points of a refresh of a table with rows, in the order in which a process passes them."""

RECOVERY_POINTS = (
    "refresh.before_claim",
    "fence.before",
    "fence.after",
    "refresh.before_recovery",
    "refresh.after_recovery",
)
"""The fault points that every process passes when it starts."""

KINDS = 5
Rows = dict[int, str]


def changed(rows: Rows, draw: random.Random) -> Rows:
    """Returns the rows after changes: 1 % of the rows are changed, 0.5 % are removed, and 0.5 % are new."""
    keys = sorted(rows)
    some = draw.sample(keys, len(keys) // 100 + len(keys) // 200)
    gone, other = set(some[: len(keys) // 200]), some[len(keys) // 200 :]
    made = {key: word for key, word in rows.items() if key not in gone}
    made |= {key: f"{rows[key].partition(',')[0]},{draw.randrange(10**9)}" for key in other}
    start = keys[-1] + 1
    return made | {start + at: f"word {start + at}" for at in range(len(keys) // 200)}


class KilledRefresh:
    """A table that is read as a whole, and two views on this table. One view copies the table's rows, and the other
    view counts the rows of each group."""

    def __init__(self, folder: Path, *, rows: int, chunk: int, seed: int, spark: SparkSession | None = None) -> None:
        self.folder = folder
        self.lives = Lives(
            module="tests.crash.refreshes",
            folder=folder,
            seconds=LIFE_SECONDS,
            pauses=Pauses(seed=seed),
            spark=spark,
        )
        self.chunk = chunk
        self.draw = random.Random(seed)
        self.rows: Rows = {key: f"word {key}" for key in range(rows)}
        self.killed = 0
        self.changes = 0

    def run(self, points: Sequence[str]) -> Mapping[str, int]:
        """Kills one process at each of the points, and compares after each complete refresh. Raises AssertionError."""
        self._put()
        self._live((), chunk=len(self.rows))
        self._compare()
        before, self.rows = self.rows, changed(self.rows, self.draw)
        self._put()
        self._live(points, chunk=self.chunk)
        self._compare()
        self._require_only_changes(before)
        return {"processes killed": self.killed, "rows compared": 3 * len(self.rows), "rows changed": self.changes}

    def _put(self) -> None:
        """Replaces the content of the upstream."""
        keys = list(self.rows)
        self.draw.shuffle(keys)
        rows = pa.table({"id": pa.array(keys, pa.int64()), "word": [self.rows[key] for key in keys]})
        write_deltalake(str(self.folder / "upstream"), rows, mode="overwrite")

    def _live(self, points: Sequence[str], *, chunk: int) -> None:
        for number, point in enumerate((*points, "")):
            status = self._process(point, chunk)
            expected = -signal.SIGKILL if point else 0
            assert status == expected, f"{point or 'the end'} ({number}): status {status}\n{self.lives.said()}"
            self.killed += bool(point)

    def _process(self, point: str, chunk: int) -> int:
        task = {"folder": str(self.folder), "rows": len(self.rows), "chunk": chunk, "point": point}
        return self.lives.live(task, is_killed=bool(point))

    def _compare(self) -> None:
        found = json.loads((self.folder / "found.json").read_text())
        for name in ("table", "copy"):
            held = {int(key): word for key, word in found[name]}
            assert len(held) == len(found[name]), f"{name} has keys twice"
            assert held == self.rows, f"{name}: {_differences(held, self.rows)}"
        groups = Counter(key % KINDS for key in self.rows)
        assert {int(group): n for group, n in found["counted"]} == groups
        self.found = found

    def _require_only_changes(self, before: Rows) -> None:
        """Checks that the table's change feed since the first load contains each differing row exactly once."""
        expected = Counter(
            {
                "delete": len(before.keys() - self.rows.keys()),
                "insert": len(self.rows.keys() - before.keys()),
                "update_postimage": sum(1 for key, word in self.rows.items() if before.get(key, word) != word),
            }
        )
        expected["update_preimage"] = expected["update_postimage"]
        read = DeltaTable(self.found["path"]).load_cdf(starting_version=self.found["first"] + 1)
        seen = Counter(pa.table(read.read_all())["_change_type"].to_pylist())
        assert seen == expected, f"the change feed has {dict(seen)}, and {dict(expected)} rows differ"
        self.changes = expected.total() - expected["update_preimage"]


def _differences(found: Rows, expected: Rows) -> str:
    wrong = [key for key in expected if found.get(key) != expected[key]]
    more = [key for key in found if key not in expected]
    return f"{len(wrong)} rows are wrong or missing ({wrong[:5]}), {len(more)} too many ({more[:5]})"


def go_on(spark: SparkSession, task: Mapping[str, Any]) -> None:
    """Creates the table and the views if they are missing. Runs a refresh if the present content of the upstream was
    not loaded yet. Writes the rows down."""
    folder = Path(task["folder"])
    spark.sql("SET statement_timeout = '600s'")
    first = folder / "first.json"
    # A new JVM would need seconds to load the classes for querying the catalog's views.
    metastore = Metastore.open(str(folder / "warehouse"))
    if metastore.snapshot().find("table", "t") is None:
        spark.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, word VARCHAR) WITH (connector = 'delta', "
            f"delta.path = '{folder / 'upstream'}', refresh_mode = 'FULL_RELOAD')"
        )
        spark.sql("CREATE MATERIALIZED VIEW copy AS SELECT id, word FROM t")
        spark.sql(f"CREATE MATERIALIZED VIEW counted AS SELECT id % {KINDS} AS grp, count(*) AS n FROM t GROUP BY 1")
    table = metastore.snapshot().find("table", "t")
    assert table is not None
    path = f"{folder / 'warehouse'}/data/{table.id}/1"

    def state() -> Any:
        return spark.sql("SELECT * FROM rw_catalog.rw_refresh_table_state").collect()[0]

    begun = folder / "begun.txt"
    spark.sql("WAIT")
    # The version shows whether the present content of the upstream was already loaded. A failed refresh is repeated.
    version = DeltaTable(str(folder / "upstream")).version()
    while not begun.exists() or begun.read_text() != str(version):
        spark.sql("REFRESH TABLE t")
        spark.sql("WAIT TABLE t")
        if state().last_failure is None:
            begun.write_text(str(version))
    spark.sql("FLUSH")
    if not first.exists():
        first.write_text(str(DeltaTable(path).version()))
    found = {
        "table": [tuple(row) for row in spark.sql("SELECT id, word FROM t").collect()],
        "copy": [tuple(row) for row in spark.sql("SELECT id, word FROM copy").collect()],
        "counted": [tuple(row) for row in spark.sql("SELECT grp, n FROM counted").collect()],
        "path": path,
        "first": int(first.read_text()),
    }
    (folder / "found.json").write_text(json.dumps(found))


def around(task: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Makes chunks as small as the task requires, because a process continues a merge as soon as it has started."""
    from rw_sql.runtime.refresh import staging

    return replaced(staging, CHUNK_ROWS=task["chunk"])


def _main(task: dict[str, Any]) -> None:
    import rw_sql
    from rw_sql.runtime.support import faults

    with around(task):
        faults.arm(task["point"], "both")
        spark = rw_sql.connect(str(Path(task["folder"]) / "warehouse"), config=settings_for(task["rows"]))
        go_on(spark, task)
        rw_sql.detach(spark)
        spark.stop()


if __name__ == "__main__":
    _main(json.load(sys.stdin))
