"""Implements ``rw-sql status`` and ``rw-sql lineage``, which give an overview of a warehouse without Spark or Java."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.interface.options import FileToWrite, WarehouseOption, old_name, output_option, require_output
from rw_sql.errors import UNDEFINED_OBJECT, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.status.reading import JobLine, WarehouseStatus

OUTPUTS = ("text", "json")
FORMATS = ("text", "mermaid", "json", "svg")
LOOK_SECONDS = 0.7
"""The time limit in seconds for each of these steps: requesting the end offsets of all upstreams, requesting the age of
the upstreams' records and, with --watch, reading the commits of tables."""

_WATCH_SECONDS = 2.0
_MOST_NAMES = 10
"""The maximum number of jobs that are listed for one reason."""


def status_command(
    warehouse: WarehouseOption = None,
    output: Annotated[str, output_option(*OUTPUTS)] = "text",
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every 2 seconds, until Ctrl-C.")] = False,
) -> None:
    """Show the owner, the jobs with their lag and rates, stalled jobs, and unsafe operations. Does not start Spark."""
    from rw_sql.cli.terminal.output import console_for
    from rw_sql.session.sparkless import sparkless

    require_output(output, OUTPUTS)
    console = console_for()
    with sparkless(warehouse, only_reads=True) as context:
        if not watch:
            _show(console, _status(context, is_only=True), output)
            return
        for number, (status, problem) in enumerate(_looks(partial(_status, context))):
            is_redrawn = output != "json" and console.is_terminal
            if is_redrawn:
                console.clear()
            elif number and output != "json" and problem is None:
                console.print()
            # The last status is still visible, so only the reason for the missing update is printed.
            if status is not None and (is_redrawn or problem is None):
                _show(console, status, output, is_one_line=True)
            if problem is not None:
                print(problem, file=sys.stdout if is_redrawn else sys.stderr, flush=True)
            time.sleep(_WATCH_SECONDS)


def _show(console: Console, status: WarehouseStatus, output: str, *, is_one_line: bool = False) -> None:
    if output == "json":
        # Each document is one line, so that a program that reads the output can find the end of the document.
        print(json.dumps(status.to_json(), indent=None if is_one_line else 2, ensure_ascii=False), flush=True)
    else:
        print_status(console, status)


def _status(context: Context, *, is_only: bool = False) -> WarehouseStatus:
    from rw_sql.runtime.observe.lag import ONCE_SECONDS
    from rw_sql.runtime.status.reading import measure, read_status

    limit = ONCE_SECONDS if is_only else None
    return read_status(
        context, measure(context, context.metastore.snapshot(), seconds=LOOK_SECONDS, table_seconds=limit)
    )


def _looks(look: Callable[[], WarehouseStatus]) -> Iterator[tuple[WarehouseStatus | None, str | None]]:
    """Yields the status every few seconds. If the status cannot be read, yields the last status (None if no status
    could be read before) and the reason."""
    from deltalake.exceptions import DeltaError

    from rw_sql.runtime.status.words import unreadable
    from rw_sql.runtime.support.processes import now_ms

    last: WarehouseStatus | None = None
    while True:
        problem = None
        try:
            last = look()
        except (SqlError, OSError, DeltaError) as error:
            problem = unreadable(error, None if last is None else last.at_ms, now_ms(), _WATCH_SECONDS)
        yield last, problem


def print_status(console: Console, status: WarehouseStatus) -> None:
    """Prints the status: one line for the warehouse, one line for each owner, the jobs as a table, and finally
    everything that needs an operator's attention."""
    from rich.text import Text

    from rw_sql.cli.terminal.output import print_rows
    from rw_sql.runtime.status.words import ago, owner_texts, worst_first
    from rw_sql.session.results import Rows

    console.print(Text(f"warehouse {status.warehouse}, epoch {status.epoch}"), soft_wrap=True)
    for _, text in owner_texts(status):
        console.print(Text(text), soft_wrap=True)
    counts = Counter(job.state for job in status.jobs)
    told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    console.print(Text(f"jobs: {told or 'none'}"), soft_wrap=True)
    if status.jobs:
        rows = tuple(_cells(job, status.at_ms) for job in worst_first(status.jobs))
        columns = ("object", "kind", "job", "state", "lag", "lag_time", "rows_per_second", "last_batch", "restarts")
        print_rows(console, Rows(columns=columns, rows=rows))
    for reason, jobs in _by_reason(status).items():
        names = ", ".join(f"{job.object} ({job.job})" for job in jobs[:_MOST_NAMES])
        more = f" and {len(jobs) - _MOST_NAMES} more" if len(jobs) > _MOST_NAMES else ""
        verb = "is" if len(jobs) == 1 else "are"
        console.print(Text(f"\n{names}{more} {verb} STALLED: {reason}"), soft_wrap=True)
        for statement in jobs[0].statements:
            console.print(Text(f"  {statement};", style="bold"), soft_wrap=True)
    if status.operations:
        console.print(Text("\nnewest unsafe operations:"))
        for operation in status.operations[:5]:
            said = f"  {operation.operation}, {ago(operation.at_ms, status.at_ms)}, {operation.actor}:"
            console.print(Text(f"{said} {operation.statement};"), soft_wrap=True)
            if operation.undo:
                console.print(Text(f"      undo: {operation.undo};", style="dim"), soft_wrap=True)


def _by_reason(status: WarehouseStatus) -> dict[str, list[JobLine]]:
    """The stalled jobs, grouped by reason. If the warehouse cannot be written, all stalled jobs are in one group, with
    this reason."""
    found: dict[str, list[JobLine]] = {}
    for job in status.stalled:
        found.setdefault(job.reason, []).append(job)
    return found


def _cells(job: JobLine, at_ms: int) -> tuple[str | None, ...]:
    from rw_sql.runtime.status.words import ago, duration

    return (
        job.object,
        job.kind.replace("_", " "),
        job.job,
        job.state,
        None if job.lag_records is None else str(job.lag_records),
        None if job.lag_seconds is None else duration(job.lag_seconds),
        None if job.rows_per_second is None else f"{job.rows_per_second:.1f}",
        None if job.last_batch_ms is None else ago(job.last_batch_ms, at_ms),
        str(job.restarts),
    )


def lineage_command(
    of: Annotated[str | None, typer.Option("--of", metavar="NAME", help="Only this object's lineage.")] = None,
    output: Annotated[str, output_option(*FORMATS)] = "text",
    file: FileToWrite = None,
    warehouse: WarehouseOption = None,
    old_form: Annotated[str | None, old_name("--format", "--output")] = None,
) -> None:
    """Show which objects read which other objects, and the state and lag of each object. Does not start
    Spark."""
    from rw_sql.session.sparkless import sparkless

    form = old_form or output
    require_output(form, FORMATS)
    with sparkless(warehouse, only_reads=True) as context:
        text = _drawn(context, of, form)
    if file is None:
        sys.stdout.write(text)
        return
    try:
        with open(file, "w", encoding="utf-8") as written:
            written.write(text)
    except OSError as error:
        from rw_sql.errors import FILE_UNREADABLE

        reason = (error.strerror or str(error)).lower()
        raise SqlError(
            FILE_UNREADABLE, f"cannot write file {file!r}: {reason}", hint="write to another file: --file FILE"
        ) from error


def _drawn(context: Context, of: str | None, form: str) -> str:
    from rw_sql.plan.result.graph import to_mermaid, to_text
    from rw_sql.plan.result.graph_svg import to_svg
    from rw_sql.runtime.status.reading import read_lineage

    snapshot = context.metastore.snapshot()
    graph = read_lineage(context, snapshot, of)
    if graph is None:
        raise SqlError(UNDEFINED_OBJECT, f'"{of}" does not exist', hint="rw-sql lineage shows all objects")
    match form:
        case "mermaid":
            return to_mermaid(graph)
        case "svg":
            return to_svg(graph)
        case "json":
            return json.dumps(graph.to_json(), indent=2, ensure_ascii=False) + "\n"
        case _:
            return to_text(graph)
