"""The README's workflow on a standalone cluster, in a separate process.

Run as ``python -m tests.integration.cluster_workflow``, with the task as JSON on standard input; see
:func:`run_workflow`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import produce_json
from tests.integration.cluster_session import WORKERS, run_in_child, session_on_cluster
from tests.integration.refreshed_table import Upstream
from tests.support.postgres import PostgresInfo

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession

ROWS = 15_000
"""The number of records in each partition of a topic. The two partitions together have more records than the driver
itself reads in a batch."""

_REPEATED, _FIRST = 1000, 500
_LATER = 5_000_000
_CUSTOMERS = 7


def run_workflow(folder: Path, bootstrap: str, postgres: PostgresInfo) -> dict[str, Any]:
    """Runs the workflow in a new process. Returns the states of its jobs, and the number of tasks that each worker's
    executors have finished. Raises AssertionError if a view, a table or the target of a sink has other rows than
    expected.
    """
    key = base64.b64encode(os.urandom(32)).decode()
    task = {"folder": str(folder), "bootstrap": bootstrap, "port": postgres.port, "key": key}
    return run_in_child("tests.integration.cluster_workflow", task)


class _Orders:
    """A source that is moved from one topic to another and back, and its expected rows."""

    def __init__(self, session: AttachedSession, bootstrap: str, prefix: str) -> None:
        self.session, self.bootstrap = session, bootstrap
        self.topics = [f"{prefix}.orders", f"{prefix}.orders_v2"]
        self.expected: Counter[int] = Counter()
        for topic in self.topics:
            create_topic(bootstrap, topic, 2)

    def write(self, topic: str, start: int, more: int = 0) -> list[int]:
        """Writes ROWS orders to each partition of a topic, and returns their ids in order of their offsets."""
        ids = []
        for partition in range(2):
            numbers = [more + partition * 1_000_000 + start + at for at in range(ROWS)]
            produce_json(
                self.bootstrap,
                topic,
                ({"id": id_, "customer": f"c{id_ % _CUSTOMERS}", "amount": id_ % 1000} for id_ in numbers),
                partition,
            )
            ids += numbers
        return ids

    def check(self, *views: str) -> None:
        """Raises AssertionError if the totals, or one of the views of rows, are wrong."""
        self.session.sql("FLUSH")
        for view in views:
            found = Counter(id_ for (id_,) in self.session.rows_of(view, "id"))
            assert found == self.expected, (view, _difference(found, self.expected), _difference(self.expected, found))
        assert self.session.rows_of("totals", "customer, orders, amount") == self.totals()

    def totals(self) -> list[tuple[str, int, int]]:
        """The expected rows of the view that counts and sums the orders of each customer."""
        counts, sums = Counter[str](), Counter[str]()
        for id_, number in self.expected.items():
            counts[f"c{id_ % _CUSTOMERS}"] += number
            sums[f"c{id_ % _CUSTOMERS}"] += number * (id_ % 1000)
        return [(customer, counts[customer], sums[customer]) for customer in sorted(counts)]

    def run(self, postgres: PostgresInfo) -> None:
        """Creates the source and its views, reads records, moves the source, undoes the move, and rewinds the
        source."""
        session = self.session
        old, new = self.topics
        self.expected.update(self.write(old, 0))
        session.run(
            "CREATE SOURCE orders (id INT, customer VARCHAR, amount INT) "
            f"WITH (connector = 'kafka', topic = '{old}', properties.bootstrap.server = '{self.bootstrap}') "
            "FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW totals AS "
            "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer",
            "CREATE MATERIALIZED VIEW every AS SELECT id, amount FROM orders",
        )
        self.check("every")
        # A view that is created later reads the existing records in a backfill.
        session.run("CREATE MATERIALIZED VIEW late AS SELECT id, customer FROM orders")
        self.check("every", "late")
        postgres.run("CREATE TABLE totals (customer TEXT PRIMARY KEY, orders BIGINT, amount BIGINT)")
        session.run(
            f"CREATE SINK pg FROM totals WITH (connector = 'jdbc', jdbc.url = '{postgres.url}', user = 'postgres', "
            "password = SECRET pw, table.name = 'totals', type = 'upsert', primary_key = 'customer')",
            "FLUSH",
        )
        assert sorted(postgres.run("SELECT * FROM totals")) == self.totals()
        definition = session.sql("SHOW CREATE SOURCE orders")[0].create_sql
        moved_ids = self.write(new, ROWS - _REPEATED)
        session.run(
            "BEGIN UNSAFE REASON 'producers moved to orders_v2'",
            "PAUSE SOURCE orders",
            f"ALTER SOURCE orders UNSAFE SET (topic = '{new}')",
            "RESET SOURCE SPLITS orders",
            f"INJECT SOURCE OFFSETS orders VALUES ('{new}:0' = {_FIRST}, '{new}:1' = {_FIRST}) ALLOW GAPS",
            "RESUME SOURCE orders",
            "COMMIT",
        )
        operation = int(session.sql("SHOW UNSAFE OPERATIONS FOR orders")[0].operation)
        self.expected.update(moved_ids[_FIRST:ROWS] + moved_ids[ROWS + _FIRST :])
        self.check("every", "late")
        assert sorted(postgres.run("SELECT * FROM totals")) == self.totals()
        session.run("DROP SINK pg", f"UNDO OPERATION {operation} REASON 'they moved back'")
        assert session.sql("SHOW CREATE SOURCE orders")[0].create_sql == definition
        later = self.write(old, 0, _LATER)
        self.expected.update(later)
        self.check("every", "late")
        session.run(f"REWIND SOURCE orders TO OPERATION {operation} REASON 'without the rows of orders_v2'")
        self.expected.subtract(moved_ids[_FIRST:ROWS] + moved_ids[ROWS + _FIRST :])
        self.expected = +self.expected
        self.check("every", "late")


def _difference(some: Counter[int], others: Counter[int]) -> tuple[int, list[tuple[int, int]]]:
    left = some - others
    return left.total(), sorted(left.items())[:5]


def _files(session: AttachedSession, folder: Path) -> None:
    """Reads a source of files that are so large that executors read them."""
    folder.mkdir()
    count = 40_000

    def put(name: str, ids: Iterable[int]) -> None:
        hidden = folder / f".{name}"
        hidden.write_text("".join(f'{{"id": {id_}, "word": "word {id_ % 10}"}}\n' for id_ in ids), encoding="utf-8")
        hidden.rename(folder / name)

    put("1.json", range(count))
    put("2.json", range(count, 2 * count))
    session.run(
        f"CREATE SOURCE files (id INT, word VARCHAR) WITH (connector = 'posix_fs', posix_fs.root = '{folder}', "
        "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW of_files AS SELECT id, word FROM files",
    )
    assert session.flushed_rows_of("of_files") == [(id_, f"word {id_ % 10}") for id_ in range(2 * count)]
    put("3.json", range(2 * count, 3 * count))
    assert session.flushed_rows_of("of_files") == [(id_, f"word {id_ % 10}") for id_ in range(3 * count)]


def _refresh(session: AttachedSession, postgres: PostgresInfo) -> None:
    """Loads a table from PostgreSQL twice, and checks the table and a view over it."""
    count = 30_000
    upstream = Upstream(session, postgres, "id INT PRIMARY KEY, n INT", "id INT PRIMARY KEY, n INT")
    session.run("CREATE MATERIALIZED VIEW of_table AS SELECT n % 5 AS five, count(*) AS c FROM t GROUP BY n % 5")
    upstream.run(f"INSERT INTO {{t}} SELECT i, i FROM generate_series(1, {count}) i")
    rows = {id_: id_ for id_ in range(1, count + 1)}
    for is_changed in (False, True):
        if is_changed:
            upstream.run("UPDATE {t} SET n = n + 1 WHERE id % 2 = 0")
            upstream.run("DELETE FROM {t} WHERE id % 3 = 0")
            rows = {id_: n + (id_ % 2 == 0) for id_, n in rows.items() if id_ % 3}
        upstream.refresh()
        assert session.rows_of("t") == sorted(rows.items())
        assert session.flushed_rows_of("of_table") == sorted(Counter(n % 5 for n in rows.values()).items())


def _finished_tasks(folder: Path, worker: str) -> int:
    """The number of tasks that a worker's executors have finished, from their logs."""
    logs = (folder / "cluster" / worker).glob("app-*/*/stderr")
    return sum(log.read_text(errors="replace").count("Finished task") for log in logs)


def main(task: dict[str, Any]) -> dict[str, object]:
    """See :func:`run_workflow`."""
    folder, postgres = Path(task["folder"]), PostgresInfo(port=task["port"])
    os.environ[KEY_VARIABLE] = task["key"]
    with session_on_cluster(folder) as (session, _cluster):
        session.allow_unsafe()
        _refresh(session, postgres)
        _Orders(session, task["bootstrap"], folder.name).run(postgres)
        _files(session, folder / "files")
        jobs = {name: job.state for name, job in session.jobs().items()}
        reasons = {name: job.reason for name, job in session.jobs().items() if job.reason}
    tasks = {worker: _finished_tasks(folder, worker) for worker in WORKERS}
    return {"jobs": jobs, "tasks": tasks, "reasons": reasons}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
