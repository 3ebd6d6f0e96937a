"""The warehouse that the pictures show: a shop with orders, payments, refunds and customers, on a broker of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rw_sql.cli.servers.kafka_topics import create_topic, delete_records, produce

PROGRAM = [sys.executable, "-c", "from rw_sql.cli.main import app; app()"]
LONGEST_SECONDS = 300.0

_NAMES = ("ann", "bob", "eve", "kim", "lee")
_COUNTRIES = ("NO", "NZ", "PT", "KR", "US")
_BROKER = "connector = 'kafka', connection = shop_kafka"

DEFINITIONS = """\
SET statement_timeout = '5min';
SET background_ddl = true;
ALTER SYSTEM SET enable_unsafe_ops = true;

CREATE CONNECTION shop_kafka WITH (type = 'kafka', properties.bootstrap.server = '{broker}');

CREATE SOURCE orders (id INT, customer VARCHAR, amount INT)
WITH (connector = 'kafka', connection = shop_kafka, topic = 'orders')
FORMAT PLAIN ENCODE JSON;

CREATE SOURCE payments (order_id INT, method VARCHAR, amount INT)
WITH (connector = 'kafka', connection = shop_kafka, topic = 'payments')
FORMAT PLAIN ENCODE JSON;

CREATE SOURCE refunds (order_id INT, amount INT)
WITH (connector = 'kafka', connection = shop_kafka, topic = 'refunds')
FORMAT PLAIN ENCODE JSON;

CREATE TABLE customers (name VARCHAR, country VARCHAR)
WITH (connector = 'kafka', connection = shop_kafka, topic = 'customers')
FORMAT PLAIN ENCODE JSON;

CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer;

CREATE MATERIALIZED VIEW paid AS
SELECT method, count(*) AS payments, sum(amount) AS amount FROM payments GROUP BY method;

CREATE MATERIALIZED VIEW refunds_of_orders AS SELECT order_id, amount FROM refunds;

CREATE MATERIALIZED VIEW totals_by_country AS
SELECT c.country, sum(t.amount) AS amount FROM totals t JOIN customers c ON c.name = t.customer GROUP BY c.country;

CREATE SINK large_orders AS SELECT id, customer, amount FROM orders WHERE amount >= 90
WITH (connector = 'kafka', connection = shop_kafka, topic = 'large_orders') FORMAT PLAIN ENCODE JSON;

FLUSH;

BEGIN UNSAFE REASON 'producers moved to orders_v2';
PAUSE SOURCE orders;
ALTER SOURCE orders UNSAFE SET (topic = 'orders_v2');
RESET SOURCE SPLITS orders;
INJECT SOURCE OFFSETS orders VALUES ('orders_v2:0' = 125, 'orders_v2:1' = 125) ALLOW GAPS;
RESUME SOURCE orders;
COMMIT;

PAUSE SOURCE payments REASON 'the bank repairs its feed';
PAUSE SOURCE refunds;
FLUSH;
"""


class Shop:
    """The shop's topics on a broker, and its warehouse."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        self.broker = broker
        self.warehouse = folder / "shop"

    def environment(self) -> dict[str, str]:
        """The environment of a program that works here."""
        state = str(self.folder / "state")
        return {**os.environ, "XDG_STATE_HOME": state, "RW_SQL_WAREHOUSE": str(self.warehouse), "PAGER": "cat"}

    def open(self) -> None:
        """Makes the topics and the objects. Afterwards, one source is paused and another has lost records."""
        for topic in ("orders", "orders_v2", "payments", "refunds", "customers", "large_orders"):
            create_topic(self.broker, topic, 2)
        self.order("orders", range(1, 251))
        self.order("orders_v2", range(201, 521))
        self.send("payments", ({"order_id": n, "method": _method(n), "amount": 5 * n} for n in range(1, 181)))
        self.send("refunds", ({"order_id": n, "amount": n} for n in range(1, 41)))
        people = zip(_NAMES, _COUNTRIES, strict=True)
        self.send("customers", ({"name": name, "country": country} for name, country in people))
        script = self.folder / "shop.sql"
        script.write_text(DEFINITIONS.replace("{broker}", self.broker), encoding="utf-8")
        self.rw_sql("run", str(script), "--yes")
        self.send("payments", ({"order_id": n, "method": _method(n), "amount": 5 * n} for n in range(181, 241)))
        self.send("refunds", ({"order_id": n, "amount": n} for n in range(41, 101)))
        delete_records(self.broker, "refunds", {0: 30, 1: 30})

    def order(self, topic: str, numbers: Iterable[int]) -> None:
        """Writes orders to a topic."""
        self.send(topic, ({"id": n, "customer": _NAMES[n * 7 % 5], "amount": n * 13 % 100} for n in numbers))

    def send(self, topic: str, rows: Iterable[dict[str, Any]]) -> None:
        """Writes rows to a topic as JSON, to its two partitions in turn."""
        from rw_sql.cli.servers.kafka_topics import Record

        records = [Record(value=json.dumps(row).encode(), partition=n % 2) for n, row in enumerate(rows)]
        produce(self.broker, topic, records)

    def rw_sql(self, *words: str) -> None:
        """Runs a command of rw-sql to its end. Raises CalledProcessError if it fails."""
        subprocess.run([*PROGRAM, *words], cwd=self.folder, env=self.environment(), check=True)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Runs the jobs by ``rw-sql serve``, while orders keep arriving; yields the address of its status page."""
        log = self.folder / "serve.log"
        with log.open("w", encoding="utf-8") as written:
            process = subprocess.Popen(
                [*PROGRAM, "serve", "--port", "0"],
                cwd=self.folder,
                env=self.environment(),
                stdout=written,
                stderr=written,
            )
        ended = threading.Event()
        sending = threading.Thread(target=self._keep_ordering, args=(ended,))
        try:
            page = _wait_for_page(log, process)
            self.rw_sql("source", "resume", "-s", "refunds")
            sending.start()
            _wait_until(lambda: _is_settled(page), f"the jobs to settle; see {log}")
            yield page
        finally:
            ended.set()
            if sending.ident is not None:
                sending.join()
            process.terminate()
            process.wait()

    def _keep_ordering(self, ended: threading.Event) -> None:
        number = 1000
        while not ended.wait(2.0):
            self.order("orders_v2", range(number, number + 40))
            number += 40


def _method(number: int) -> str:
    return ("card", "card", "transfer")[number % 3]


def _wait_for_page(log: Path, process: subprocess.Popen[bytes]) -> str:
    def address() -> str | None:
        if process.poll() is not None:
            raise RuntimeError(f"rw-sql serve ended:\n{log.read_text(encoding='utf-8')}")
        found = re.search(r"status page at (\S+)", log.read_text(encoding="utf-8"))
        return found[1] if found else None

    _wait_until(lambda: address() is not None, "the status page")
    page = address()
    assert page is not None
    _wait_until(lambda: _is_ready(page), f"rw-sql serve to run the jobs; see {log}")
    return page


def _is_ready(page: str) -> bool:
    try:
        with urllib.request.urlopen(f"{page}readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _is_settled(page: str) -> bool:
    """True once the jobs run as the pictures show them: one stalled, one paused, and rates known of the others."""
    with urllib.request.urlopen(f"{page}status.json") as answer:
        jobs = {job["object"]: job for job in json.load(answer)["jobs"]}
    states = {name: job["state"] for name, job in jobs.items()}
    is_as_shown = states.get("refunds") == "STALLED" and states.get("payments") == "PAUSED"
    moving = [jobs.get(name, {}) for name in ("orders", "totals", "totals_by_country")]
    return is_as_shown and all(job.get("state") == "RUNNING" and job.get("rows_per_second") for job in moving)


def _wait_until(is_met: Any, what: str) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    while not is_met():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {LONGEST_SECONDS:.0f} s for {what}")
        time.sleep(1.0)
