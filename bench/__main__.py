"""``python -m bench``: runs the cases, prints and writes their results; exit status 1 if a goal is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.harness import Case, Outcome, find_cases, measure
from bench.report import describe, print_outcomes, row, write_json, write_page
from rw_sql.cli.output import console_for

HERE = Path(__file__).parent


def main(
    only: Annotated[list[str] | None, typer.Argument(metavar="[CASE]...", help="These cases; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The cases that take seconds; writes nothing.")] = False,
    runs: Annotated[int | None, typer.Option(help="Measure each side this often; writes nothing.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Name the cases and stop.")] = False,
) -> None:
    """Measure rw_sql against what a user would run instead."""
    console = console_for()
    cases = _chosen(list(find_cases(HERE / "cases")), frozenset(only or ()), is_quick=quick)
    if show:
        for case in cases:
            console.print(describe(case), markup=False)
        return
    outcomes: list[Outcome] = []
    for case in cases:
        outcome = measure(case, runs=runs)
        outcomes.append(outcome)
        console.print(" · ".join(row(outcome)), markup=False)
    print_outcomes(console, outcomes)
    if not (quick or only or runs):
        write_json(outcomes, HERE / "results.json")
        write_page(outcomes, HERE.parent / "docs" / "benchmarks.md")
    if any(outcome.is_met is False for outcome in outcomes):
        raise typer.Exit(1)


def _chosen(cases: list[Case], names: frozenset[str], *, is_quick: bool) -> list[Case]:
    unknown = names - {case.name for case in cases}
    if unknown:
        raise typer.BadParameter(f"no such case: {', '.join(sorted(unknown))}; --list names them")
    return [case for case in cases if (not names or case.name in names) and (case.is_quick or not is_quick)]


if __name__ == "__main__":
    typer.run(main)
