"""Benchmark results as a table in the terminal, as results.json and as the table in docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.harness import Case, Outcome

BEGIN, END = "<!-- table: make bench writes from here -->", "<!-- table: to here -->"


def figure(value: float) -> str:
    """A measurement with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def span(values: Sequence[float]) -> str:
    """Median, with least and greatest in brackets."""
    return f"{figure(median(values))} ({figure(min(values))}–{figure(max(values))})" if values else "–"


def verdict(outcome: Outcome) -> str:
    """``met``, ``missed`` or why the case was not run."""
    if outcome.not_run is not None:
        return f"not run: {outcome.not_run}"
    return "met" if outcome.is_met else "missed"


def row(outcome: Outcome) -> tuple[str, ...]:
    """An outcome's cells: case, unit, ours, peer, ratio with spread, goal, verdict."""
    ratio = "–"
    if outcome.ratio is not None and outcome.spread is not None:
        low, high = outcome.spread
        ratio = f"{figure(outcome.ratio)} ({figure(low)}–{figure(high)})"
    case = outcome.case
    return (
        case.title,
        case.peer or "–",
        case.unit,
        span(outcome.ours),
        span(outcome.peer),
        ratio,
        outcome.goal,
        verdict(outcome),
    )


HEADER = ("case", "peer", "unit", "ours", "peer's", "ours ÷ peer", "goal", "verdict")


def print_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints the whole table and the settings of every case."""
    table = Table(*HEADER, title="median (least–greatest)")
    for outcome in outcomes:
        table.add_row(*row(outcome))
    console.print(table)
    for outcome in outcomes:
        for name, value in outcome.settings.items():
            console.print(f"{outcome.case.name}: {name} = {value}", style="dim", markup=False)


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"Spark {version('pyspark')}, Delta {version('delta-spark')}, delta-rs {version('deltalake')}"
    )


def write_json(outcomes: Sequence[Outcome], file: Path) -> None:
    """Writes one entry a case; cases of earlier runs that were not run this time stay."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known.update({outcome.case.name: outcome.as_json() for outcome in outcomes})
    file.write_text(json.dumps(known, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def write_page(outcomes: Sequence[Outcome], page: Path) -> None:
    """Replaces the table between the page's two marks; the words around it are written by hand."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    lines = [f"Measured on {datetime.now(UTC):%Y-%m-%d}: {machine()}. Median (least–greatest).", ""]
    lines += ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row(outcome)) + " |" for outcome in outcomes]
    settings = [
        f"- `{outcome.case.name}`: " + "; ".join(f"{name} = {value}" for name, value in outcome.settings.items())
        for outcome in outcomes
        if outcome.settings
    ]
    if settings:
        lines += ["", "Settings:", "", *settings]
    page.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


def describe(case: Case) -> str:
    """One line for ``--list``."""
    return f"{case.name:32} {case.title}" + (f" [{case.peer}]" if case.peer else "")
