"""``python -m bench.slopes``: measures costs that grow with the number of splits and of sources, for
docs/explanation/scale.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from rich.console import Console
from rich.table import Table

from bench.cases.metastore import commit, metastore_of, source
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import NotedPosition
from rw_sql.metastore.records import AssignSplits, PutSplitStates
from rw_sql.runtime.delta.delta_log import JobCommit

SPLITS = (1_000, 10_000, 100_000)
SOURCES = (100, 1_000, 10_000)
_REPEATS = 5


def _measured(run: Callable[[], object]) -> tuple[float, float]:
    """The median wall and CPU milliseconds of a few calls."""
    wall, cpu = [], []
    for _ in range(_REPEATS):
        started, used = perf_counter(), process_time()
        run()
        wall.append((perf_counter() - started) * 1e3)
        cpu.append((process_time() - used) * 1e3)
    return median(wall), median(cpu)


def splits_slopes(count: int) -> Mapping[str, tuple[float, float]]:
    """The times of the catalog's work for a source with this many splits, as wall and CPU milliseconds."""
    names = tuple(f"orders:{number}" for number in range(count))
    states = {name: f'{{"cluster":"lkc-7x2p","incarnation":"q0B2v3","offset":{at}}}' for at, name in enumerate(names)}
    with metastore_of(10) as metastore:
        commit(metastore, AssignSplits(fragment="1", splits=names))
        at = iter(range(1_000))

        def note() -> None:
            version = next(at)
            metastore.jobs.note_positions(
                [
                    NotedPosition(fragment="1", split=name, state=state, epoch=1, run=1, log_version=version)
                    for name, state in states.items()
                ]
            )

        ranges = dict.fromkeys(names, (0, 10))
        batch = JobCommit(job="ingest-1", run=1, epoch=1, batch=1, generation=1, ranges=ranges)
        return {
            "commit the positions of all splits": _measured(
                lambda: commit(metastore, PutSplitStates(fragment="1", states=states))
            ),
            "store the positions of all splits": _measured(note),
            "a batch's commit that moves all splits, as text": _measured(batch.to_json),
            "an entry of Spark's offset log, written and read": _measured(lambda: json.loads(json.dumps(states))),
            "open the catalog": _measured(lambda: Metastore.open(str(Path(metastore.directory).parent))),
        }


def source_slopes(count: int) -> Mapping[str, tuple[float, float]]:
    """The times of the catalog's work with this many sources, as wall and CPU milliseconds."""
    with metastore_of(count) as metastore:
        return {
            "open the catalog": _measured(lambda: Metastore.open(str(Path(metastore.directory).parent))),
            "commit one more": _measured(lambda: commit(metastore, source(metastore.snapshot().next_id))),
        }


def main() -> None:
    """Prints the tables."""
    console = Console()
    for what, sizes, slopes in (("splits", SPLITS, splits_slopes), ("sources", SOURCES, source_slopes)):
        found = {size: slopes(size) for size in sizes}
        table = Table(what, *(f"{size:,}" for size in sizes), title="ms, in brackets of CPU")
        for row in found[sizes[0]]:
            table.add_row(row, *(f"{found[size][row][0]:.1f} ({found[size][row][1]:.1f})" for size in sizes))
        console.print(table)


if __name__ == "__main__":
    main()
