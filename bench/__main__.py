"""``python -m bench``: runs the cases, and prints and writes their results. The exit status is 1 if a goal is
missed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from bench.harness import Case, Outcome, find_cases, together
from bench.isolated import CASES, leave_in_order, measure_apart
from bench.report import describe, known_rounds, print_outcomes, row, write_json, write_page, write_plot
from rw_sql.cli.process_cleanup import keep_tidy
from rw_sql.cli.terminal.output import console_for

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


def main(
    only: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CASE]...", help="The cases to run, by name or pattern; by default all but the manual ones."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only the cases that take seconds; write nothing.")
    ] = False,
    runs: Annotated[int | None, typer.Option(help="The number of measurements of each side; write nothing.")] = None,
    rounds: Annotated[int, typer.Option(help="The number of rounds, to see how much their medians differ.")] = 1,
    add: Annotated[bool, typer.Option("--add", help="Add the results to the rounds in results.json.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Also write the results if cases were named.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the cases and exit.")] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Measure nothing: judge the stored results by the current goals, and write the page."
        ),
    ] = False,
) -> None:
    """Measure rw_sql and the programs that a user would run instead."""
    keep_tidy()
    leave_in_order()
    console = console_for()
    every = list(find_cases(CASES))
    cases = _chosen(every, frozenset(only or ()), is_quick=quick, is_listing=show)
    if show:
        for case in cases:
            console.print(describe(case), markup=False)
        return
    if page:
        _write([], every)
        return
    outcomes: list[Outcome] = []
    before = known_rounds(HERE / "results.json") if add else {}
    started = perf_counter()
    for group in together(cases):
        began = perf_counter()
        for measured in measure_apart(group, runs=runs, rounds=rounds):
            outcome = measured.after(before.get(measured.case.name, ()))
            outcomes.append(outcome)
            console.print(" · ".join(row(outcome.as_json())), markup=False)
        console.print(f"  ({perf_counter() - began:.0f} s for {', '.join(case.name for case in group)})", markup=False)
    print_outcomes(console, outcomes)
    console.print(f"{len(outcomes)} cases in {perf_counter() - started:.0f} s", markup=False)
    if (write or not only) and not quick and not runs:
        _write(outcomes, every)
    if any(outcome.is_met is False for outcome in outcomes):
        raise typer.Exit(1)


def _write(outcomes: list[Outcome], every: list[Case]) -> None:
    known = write_json(outcomes, HERE / "results.json", {case.name: case for case in every})
    write_page(known, PAGE)
    write_plot(known, PAGE.with_suffix(".svg"))


def _chosen(cases: list[Case], names: frozenset[str], *, is_quick: bool, is_listing: bool = False) -> list[Case]:
    """The cases of a run: the cases whose names match ``names`` or, if ``names`` is empty, all cases except the manual
    cases."""
    unknown = [name for name in sorted(names) if not any(fnmatchcase(case.name, name) for case in cases)]
    if unknown:
        raise typer.BadParameter(f"no such case: {', '.join(unknown)}; --list names them")
    wanted = [
        case
        for case in cases
        if (any(fnmatchcase(case.name, name) for name in names) if names else is_listing or not case.is_manual)
    ]
    return [case for case in wanted if case.is_quick or not is_quick]


if __name__ == "__main__":
    typer.run(main)
