"""Eight views on one topic of 2,000,000 records, compared with eight plain Spark queries on the same topic."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench.cases.eight_views import BYTES, CPU, PARTITIONS, SECONDS, held_by, run_side
from bench.streaming import child, fill, measured_broker
from proof.harness import Facts, Proof

RECORDS = 2_000_000
_FIRST = 1_000
_WARM_UPS = 2
_MOST_BYTES = 1.05
_MOST_CPU = 0.5


def _check(_seed: int, _folder: Path) -> Facts:
    from rw_sql.cli.servers.kafka_topics import create_topic

    # rw_sql is measured first: its views would rest after a minute without records, and the measurement must not
    # include the time that it takes to wake them.
    order = ("ours", "bare")
    with measured_broker() as broker, ExitStack() as opened:
        create_topic(broker.bootstrap, "flights", PARTITIONS)
        fill(broker.bootstrap, "flights", _FIRST, PARTITIONS)
        sides = {
            side: opened.enter_context(
                child("bench.cases.eight_views", side, broker.bootstrap, "flights", str(broker.folder / side))
            )
            for side in (*order, "batch")
        }
        for process in sides.values():
            assert process.read_line() == "ready"
        there = _FIRST
        for side in order:
            run_side(broker, sides[side], "flights", there)
        earlier = []
        for number in range(_WARM_UPS + 1):
            # A run without new records measures the cost of starting the queries. It also wakes rw_sql's views at rest.
            started = {side: run_side(broker, sides[side], "flights", there)[CPU] for side in reversed(order)}
            before = broker.topic_bytes("flights")
            fill(broker.bootstrap, "flights", RECORDS, PARTITIONS, first=there)
            there += RECORDS
            size = broker.topic_bytes("flights") - before
            found = {side: run_side(broker, sides[side], "flights", there) for side in order}
            spent = {side: found[side][CPU] - started[side] for side in order}
            if number < _WARM_UPS:
                earlier.append(f"{spent['ours']:.1f} to {spent['bare']:.1f}")
        run_side(broker, sides["batch"], "flights", there)
        held, expected = held_by(sides["ours"]), held_by(sides["batch"])
    ours, bare = found["ours"], found["bare"]
    assert held == expected, f"the views hold {held}, their queries on the topic give {expected}"
    sent, cpu, bare_cpu = int(ours[BYTES]), spent["ours"], spent["bare"]
    told = f"{sent:,} bytes of {size:,}, {cpu:.1f} s of CPU against {bare_cpu:.1f} s, before {', '.join(earlier)}"
    assert sent <= _MOST_BYTES * size, told
    assert cpu < _MOST_CPU * bare_cpu, told
    return {
        "records": RECORDS,
        "before, s of CPU": ", ".join(earlier),
        "bytes of the topic": size,
        "bytes sent to ours": sent,
        "bytes sent to the eight queries": int(bare[BYTES]),
        "ours, s of CPU": round(cpu, 1),
        "eight queries, s of CPU": round(bare_cpu, 1),
        "ours, s": round(ours[SECONDS], 1),
        "eight queries, s": round(bare[SECONDS], 1),
    }


PROOF = Proof(
    name="eight-views",
    claim="Eight views on one topic read it once, in less than half of the CPU time of eight queries.",
    method=(
        f"A topic of {PARTITIONS} partitions gets {RECORDS:,} new JSON records. Two processes have read the topic so "
        "far: one with a source and eight views, the other with eight plain Spark queries with recommended settings. "
        f"Each of them in turn reads all new records. This is done {_WARM_UPS + 1} times, and only the last time is "
        "reported, because the JVMs have then compiled their code. Then each view is compared with its query on the "
        "whole topic "
        "in one batch, by the number of rows and the sum of their 64-bit hashes. The bytes sent are the broker's "
        "meter BytesOutPerSec of the topic, and the topic's size is the gauge of its logs. CPU time is that of Python "
        "and JVM, minus that of a run without new records just before, in which both processes start their queries too."
    ),
    seeds=range(2),
    check=_check,
)
