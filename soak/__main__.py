"""``python -m soak``: random statements, moves and faults for a given time. The exit status is 1 if a row is wrong."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from proof.harness import tried_commit
from rw_sql.cli.process_cleanup import keep_tidy
from soak.operator import Operator, RefusedError
from soak.processes import Processes
from soak.upstream import Upstream

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "proof" / "soak.md"


def main(
    minutes: Annotated[float, typer.Option(min=1, help="The duration of the run in minutes.")] = 60,
    seed: Annotated[int, typer.Option(help="The seed of the random draws.")] = 1,
) -> None:
    """Run random statements, moves and faults on one warehouse, and compare its rows with an oracle."""
    keep_tidy()
    started, ended = time.monotonic(), False
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    draw = random.Random(seed)
    processes = Processes(folder)
    failure = None
    try:
        processes.start()
        upstream = Upstream(processes.bootstrap, draw)
        upstream.create()
        operator = Operator(processes, upstream, draw)
        operator.begin()
        while time.monotonic() < started + 60 * minutes:
            operator.step()
            operator.counts["steps"] += 1
            rows = operator.compare()
            typer.echo(f"{(time.monotonic() - started) / 60:5.1f} min  {operator.counts['steps']} steps, {rows:,} rows")
        ended = True
    except (AssertionError, RefusedError) as wrong:
        failure = str(wrong)
    finally:
        processes.stop()
    _write_page(operator, seed, (time.monotonic() - started) / 60, processes.starts, failure)
    if failure is not None:
        typer.echo(failure)
        typer.echo(f"what is left of it: {folder}")
        raise typer.Exit(1)
    if ended:
        shutil.rmtree(folder, ignore_errors=True)


def _write_page(operator: Operator, seed: int, minutes: float, starts: int, failure: str | None) -> None:
    facts = {
        "seed": seed,
        "minutes": f"{minutes:.0f}",
        "owners started": starts,
        **{name: f"{count:,}" for name, count in sorted(operator.counts.items())},
        "longest wait for one statement or FLUSH": f"{operator.longest_seconds:.0f} s",
        "result": "held" if failure is None else "failed: " + failure.splitlines()[-1],
        "commit": tried_commit(ROOT),
        "ended": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    lines = [
        "# Soak",
        "",
        "`make soak` runs `rw-sql serve` on one warehouse and a Kafka broker. A second process sends statements: it",
        "creates and drops views, injects offsets, moves the source between topics, forgets its offsets and undoes",
        "operations. Meanwhile the owner's Python process and its JVM are killed or stopped by SIGSTOP, and the broker",
        "is killed; the owner or the broker stays down for up to two minutes. The stored data becomes an hour or a",
        "week older. After each step, a keyed table and the views are compared with rows that are computed from the",
        "steps alone. One of the views has every row of the source's log.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
