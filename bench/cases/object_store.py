"""A warehouse in an S3 store: the time until a view shows a record, and the number of requests, compared with one plain
Spark query. In one of the cases, the store answers each request after 30 ms, as a store in the same region does.

``python -m bench.cases.object_store {ours | bare} <bootstrap> <folder>`` is the process of one side, which maintains an
aggregate of the topic ``flights`` until the process is ended.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO, Any

from bench.harness import Case, NotRunError, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    Child,
    bare_flights,
    bare_session,
    child,
    fill,
    flights_broker,
    merge_into,
    write_to_parent,
)

_FIRST, _RECORDS = 100, 10
_SECONDS_BETWEEN, _LONGEST = 1.0, 120.0
_DELAY_MS = 30
_VISIBLE, _DELAYED, _REQUESTS = "s3_visible", f"s3_visible_{_DELAY_MS}_ms", "s3_requests"
_QUERY = "SELECT carrier, count(*) AS flights, sum(delay) AS delay FROM flights GROUP BY carrier"


def _ours(bootstrap: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = 'flights', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql(f"CREATE MATERIALIZED VIEW seen AS {_QUERY}").collect()
    spark.sql("FLUSH").collect()
    view = spark.sql("SELECT id FROM rw_catalog.rw_materialized_views WHERE name = 'seen'").collect()[0][0]
    write_to_parent(f"data/{view}/1")
    sys.stdin.readline()
    write_to_parent(str(spark.sql("SELECT sum(flights) FROM seen").collect()[0][0]))
    sys.stdin.read()


def _bare(bootstrap: str, folder: str) -> None:
    spark = bare_session(folder)
    bare_flights(spark, bootstrap, "flights").createOrReplaceTempView("flights")
    query = (
        spark.sql(_QUERY)
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .foreachBatch(merge_into(spark, f"{folder}/seen", ["carrier"]))
        .start()
    )
    query.processAllAvailable()
    write_to_parent("seen")
    sys.stdin.readline()
    write_to_parent(str(spark.read.format("delta").load(f"{folder}/seen").selectExpr("sum(flights)").collect()[0][0]))
    sys.stdin.read()


@dataclass(slots=True)
class _Requests:
    """The store's list of its requests, which is read while the list grows."""

    file: IO[str]
    rest: str = ""

    def newer(self) -> list[dict[str, Any]]:
        """The requests since the last call."""
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        return [json.loads(line) for line in lines]


@dataclass(slots=True)
class _Side:
    """One side, with its process and a pattern that matches the requests for commits of its table."""

    process: Child
    commit: re.Pattern[str]
    told: int = 0


@contextmanager
def _open(delay_ms: int) -> Iterator[Pair]:
    from tests.support.s3_store import S3Store

    with flights_broker() as (bootstrap, folder):
        fill(bootstrap, "flights", _FIRST, 2)
        (folder / "store").mkdir()
        store = S3Store(folder / "store", delay_ms=delay_ms)
        before = {name: os.environ.get(name) for name in store.environment()}
        os.environ.update(store.environment())
        try:
            with (
                child("bench.cases.object_store", "ours", bootstrap, place := store.warehouse()) as ours,
                child("bench.cases.object_store", "bare", bootstrap, bare_place := store.warehouse()) as bare,
                Path(folder, "store", "requests.jsonl").open(encoding="utf-8") as file,
            ):
                requests, written = _Requests(file), _FIRST
                sides = [
                    _Side(
                        process, re.compile(rf"{of.removeprefix('s3:/')}/{process.read_line()}/_delta_log/\d+[.]json$")
                    )
                    for process, of in ((ours, place), (bare, bare_place))
                ]
                for side in sides:
                    side.process.halt()

                def figures(side: _Side) -> Mapping[str, float]:
                    nonlocal written
                    side.process.resume()
                    # The records that the other side has read in the meantime are new for this side.
                    time.sleep(_SECONDS_BETWEEN)
                    _until_at_rest(requests, side)
                    ages: list[float] = []
                    count = 0
                    for _ in range(_RECORDS):
                        began = time.time()
                        fill(bootstrap, "flights", 1, 2, first=written)
                        written += 1
                        age, passed = _age(requests, side, began)
                        ages.append(age)
                        count += passed
                    side.process.halt()
                    return {_VISIBLE: median(ages) * 1e3, _DELAYED: median(ages) * 1e3, _REQUESTS: count / _RECORDS}

                yield Pair(
                    ours=partial(figures, sides[0]),
                    peer=partial(figures, sides[1]),
                    settings={
                        "store": f"moto's S3 server on this machine, each request answered after {delay_ms} ms or more",
                        "records": f"{_RECORDS}, each {_SECONDS_BETWEEN:g} s after the last one was visible",
                        "visible": "until the store has answered the commit to the view's table",
                        "requests": "of all kinds, also for leases, in the time of all records, per record",
                        "both": f"{BOTH}; checkpoints and tables are in the store; the other side is suspended",
                        "ours": "a source and a view of groups",
                        "peer": "one query, from_json, the same groups by MERGE into Delta",
                    },
                )
                for side in sides:
                    side.process.resume()
                    _until_at_rest(requests, side)
                    side.process.write_line("")
                    assert int(side.process.read_line()) == written, "a side does not show every record"
        finally:
            store.stop()
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _until_at_rest(requests: _Requests, side: _Side) -> None:
    """Waits until the side has committed nothing for five seconds."""
    last = time.time()
    while time.time() - last < 5 * _SECONDS_BETWEEN:
        if any(_is_commit(side, request) for request in requests.newer()):
            last = time.time()
        time.sleep(0.05)


def _age(requests: _Requests, side: _Side, began: float) -> tuple[float, int]:
    """The seconds from ``began`` until the side's next commit, and the number of all requests until some time after
    this commit."""
    count, found = 0, None
    while time.time() < (began + _LONGEST if found is None else found + _SECONDS_BETWEEN):
        for request in requests.newer():
            count += 1
            if found is None and _is_commit(side, request):
                found = request["answered"]
        time.sleep(0.005)
    if found is None:
        raise NotRunError(f"no commit within {_LONGEST:g} s")
    return found - began, count


def _is_commit(side: _Side, request: Mapping[str, Any]) -> bool:
    is_done = request["method"] == "PUT" and request["status"] < 300
    return is_done and side.commit.search(request["path"]) is not None


def _case(name: str, title: str, unit: str, opened: partial[Any]) -> Case:
    return Case(name=name, title=title, peer="one query with MERGE", unit=unit, goal=1.0, open=opened, is_manual=True)


_SOON, _AFTER_30 = partial(_open, 0), partial(_open, _DELAY_MS)

CASES = (
    _case(_VISIBLE, "warehouse in an S3 store: from producing a record until a view shows it", "ms", _SOON),
    _case(_REQUESTS, "warehouse in an S3 store: requests per record", "requests", _SOON),
    _case(
        _DELAYED,
        f"warehouse in an S3 store that answers after {_DELAY_MS} ms: from producing a record until a view shows it",
        "ms",
        _AFTER_30,
    ),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
