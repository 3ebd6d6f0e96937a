"""Parsing CREATE SOURCE, compared with sqlglot, the only other Python parser that accepts this statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from time import perf_counter

from bench.harness import Case, Pair

STATEMENT = """CREATE SOURCE orders (order_id BIGINT, customer VARCHAR, amount NUMERIC, placed_at TIMESTAMPTZ)
WITH (connector = 'kafka', topic = 'orders', properties.bootstrap.server = 'localhost:9092',
scan.startup.mode = 'earliest') FORMAT PLAIN ENCODE JSON"""
REPEATS = 500


def _microseconds(parse: Callable[[str], object]) -> Callable[[], float]:
    def measure() -> float:
        started = perf_counter()
        for _ in range(REPEATS):
            parse(STATEMENT)
        return (perf_counter() - started) / REPEATS * 1e6

    return measure


@contextmanager
def _open_create_source() -> Iterator[Pair]:
    import sqlglot

    import rw_sql

    compiled = "compiled" if find_spec("sqlglotc") or find_spec("sqlglotrs") else "not compiled"
    yield Pair(
        ours=_microseconds(rw_sql.parse),
        peer=_microseconds(lambda text: sqlglot.parse_one(text, read="risingwave")),
        settings={"sqlglot": f"{version('sqlglot')}, {compiled}, read='risingwave'", "repeats": str(REPEATS)},
    )


CASES = (
    Case(
        name="parse_create_source",
        title="parse CREATE SOURCE",
        peer="sqlglot parse_one",
        unit="µs",
        goal=0.6,
        open=_open_create_source,
        is_quick=True,
    ),
)
