"""``python -m soak``: random statements, moves and faults for a given time. The exit status is 1 if a row is wrong."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rw_sql.cli.process_cleanup import keep_tidy
from soak.faults import Faults, faults_of
from soak.operator import Operator, RefusedError
from soak.places import MasterKind, Place, WarehouseKind, open_place
from soak.processes import Processes
from soak.readings import Readings, why_no_registry
from soak.report import Report, page_of
from soak.upstream import Upstream
from tests.support.s3_store import unconditional_commits

_LONGER = 1.5
"""How much longer a run may take until each fault has had its turn."""


def main(
    minutes: Annotated[
        float, typer.Option(min=1, help="The duration of the run in minutes; half as long again until each fault came.")
    ] = 60,
    seed: Annotated[int, typer.Option(help="The seed of the random draws.")] = 1,
    warehouse: Annotated[WarehouseKind, typer.Option(help="Where the warehouse is.")] = WarehouseKind.DISK,
    master: Annotated[MasterKind, typer.Option(help="The Spark master of the owner.")] = MasterKind.LOCAL,
    only: Annotated[str, typer.Option(help="Only faults whose names contain this text.")] = "",
    page: Annotated[Path | None, typer.Option(help="The page to write instead of the one in docs/proof.")] = None,
) -> None:
    """Run random statements, moves and faults on one warehouse, and compare its rows with an oracle."""
    keep_tidy()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the disk is unmounted
    report = Report(seed=seed, warehouse=warehouse, master=master)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with open_place(folder, warehouse, master) as place:
        try:
            _run(folder, place, report, minutes, only)
        except (AssertionError, RefusedError) as wrong:
            report.failure = str(wrong)
        finally:
            if not report.is_held:
                place.keep(folder / "left")
    report.write(page or page_of(warehouse))
    if report.failure is not None:
        typer.echo(report.failure)
        typer.echo(f"what is left of it: {folder}")
        raise typer.Exit(1)
    shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, place: Place, report: Report, minutes: float, only: str) -> None:
    """Raises AssertionError if something is wrong, and RefusedError if a statement is refused for ever."""
    draw = random.Random(report.seed)
    processes = Processes(folder, place, why_no_registry())
    with ExitStack() as stack:
        stack.callback(report.note_processes, processes)
        stack.callback(processes.stop)
        processes.start()
        readings = None
        if not processes.why_no_registry:
            readings = Readings(folder / "registry", draw)
            stack.callback(readings.stop)
            readings.start(processes.bootstrap)
        upstream = Upstream(processes.bootstrap, draw, readings)
        upstream.create()
        # Faults draw their durations on a thread of their own.
        faults, report.left_out = faults_of(processes, readings, random.Random(report.seed))
        faults = [fault for fault in faults if only in fault.name]
        assert faults, f"no fault has a name with {only!r}"
        report.faults = [fault.name for fault in faults]
        operator = Operator(processes, upstream, Faults(faults, draw), draw)
        stack.callback(report.note_operator, operator)
        operator.begin()
        started = time.monotonic()
        while (passed := (time.monotonic() - started) / 60) < minutes or (
            operator.faults.is_first_round and passed < _LONGER * minutes
        ):
            operator.step()
            operator.counts["steps"] += 1
            rows = operator.compare()
            typer.echo(f"{(time.monotonic() - started) / 60:5.1f} min  {operator.counts['steps']} steps, {rows:,} rows")
        if place.store is not None:
            replaced = unconditional_commits(place.store.requests())
            assert not replaced, operator.tell(f"commits that could have replaced another: {replaced[:10]}")
    report.is_held = True


if __name__ == "__main__":
    typer.run(main)
