"""Benchmark results: a table in the terminal, results.json, the table and the plot of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import Case, Outcome, Round
from bench.plot import plot

BEGIN, END = "<!-- table: make bench writes from here -->", "<!-- table: to here -->"

Entry = Mapping[str, Any]
"""A case's entry in results.json."""


def figure(value: float) -> str:
    """A measurement with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def span(summary: Mapping[str, float] | None) -> str:
    """The median, with the smallest and greatest value in brackets."""
    if summary is None:
        return "–"
    return f"{figure(summary['median'])} ({figure(summary['min'])}–{figure(summary['max'])})"


def verdict(entry: Entry) -> str:
    """``met``, ``missed``, ``no goal``, or why the case was not run or failed."""
    if "not_run" in entry:
        return f"not run: {entry['not_run']}"
    if "failed" in entry:
        return f"failed: {entry['failed']}"
    if entry["met"] is None:
        return "no goal"
    return "met" if entry["met"] else "missed"


def row(entry: Entry) -> tuple[str, ...]:
    """A case's cells: title, peer, unit, ours, peer's, ratio with spread, goal, how far rounds differ, verdict."""
    ratio, drift = "–", entry.get("drift")
    if entry.get("ratio") is not None:
        low, high = entry["spread"]
        ratio = f"{figure(entry['ratio'])} ({figure(low)}–{figure(high)})"
    return (
        str(entry["title"]),
        str(entry["against"] or "–"),
        str(entry["unit"]),
        span(entry.get("ours")),
        span(entry.get("peer")),
        ratio,
        str(entry["goal"]),
        "–" if drift is None else f"{drift:.0%}",
        verdict(entry),
    )


HEADER = ("case", "peer", "unit", "ours", "peer's", "ours ÷ peer", "goal", "rounds differ by", "verdict")


def print_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints the whole table and the settings of all cases."""
    table = Table(*HEADER, title="median (least–greatest)")
    for outcome in outcomes:
        table.add_row(*row(outcome.as_json()))
    console.print(table)
    for line in settings_lines({outcome.case.name: outcome.settings for outcome in outcomes}):
        console.print(line, style="dim", markup=False)


def machine() -> str:
    """The machine and the versions on which the figures were measured."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"Spark {version('pyspark')}, Delta {version('delta-spark')}, delta-rs {version('deltalake')}"
    )


def known_rounds(file: Path) -> dict[str, tuple[Round, ...]]:
    """The stored rounds of a results file, by the names of their cases."""
    return {name: tuple(Round(**one) for one in entry.get("rounds", ())) for name, entry in _entries(file).items()}


def _entries(file: Path) -> dict[str, Entry]:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write_json(outcomes: Sequence[Outcome], file: Path, names: Container[str]) -> dict[str, Entry]:
    """Writes one entry per case and returns all entries; entries not measured this time stay if their cases still
    exist."""
    known = {name: entry for name, entry in _entries(file).items() if name in names}
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    known.update({outcome.case.name: {**outcome.as_json(), "measured": day} for outcome in outcomes})
    file.write_text(json.dumps(known, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    return known


def write_page(entries: Mapping[str, Entry], page: Path) -> None:
    """Replaces the table between the page's two marks; the text around it is written by hand."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    days = sorted({str(entry["measured"]) for entry in entries.values() if "measured" in entry})
    lines = [f"Measured on {' and '.join(days) or 'no day'}: {machine()}. Median (least–greatest).", ""]
    lines += ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row(entry)) + " |" for _, entry in sorted(entries.items())]
    settings = settings_lines({name: entry.get("settings", {}) for name, entry in sorted(entries.items())})
    if settings:
        lines += ["", "Settings:", "", *(f"- {line}" for line in settings)]
    page.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


def settings_lines(settings: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for each group of cases with the same settings; cases without settings are omitted."""
    named: dict[str, list[str]] = {}
    for name, each in settings.items():
        if each:
            named.setdefault("; ".join(f"{key} = {value}" for key, value in each.items()), []).append(f"`{name}`")
    return [f"{', '.join(names)}: {told}" for told, names in named.items()]


def write_plot(entries: Mapping[str, Entry], file: Path) -> None:
    """Draws each case's share of what its goal allows."""
    bars = {
        name: (float(entry["share"]), bool(entry["met"]))
        for name, entry in entries.items()
        if entry.get("share") is not None
    }
    file.write_text(plot(bars), encoding="utf-8")


def describe(case: Case) -> str:
    """One line for ``--list``."""
    return f"{case.name:32} {case.title}" + (f" [{case.peer}]" if case.peer else "")
