"""Benchmark results: a table in the terminal, results.json, the generated parts and the plot of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import STEADY, Case, Outcome, Round
from bench.plot import plot

BEGIN, END = "<!-- table: make bench writes from here -->", "<!-- table: to here -->"
GOALS_BEGIN, GOALS_END = "<!-- goals: make bench writes from here -->", "<!-- goals: to here -->"

LIMITS = Path(__file__).with_name("limits.toml")

Entry = Mapping[str, Any]
"""A case's entry in results.json."""


def figure(value: float) -> str:
    """The text of a measurement, with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def span(summary: Mapping[str, float] | None) -> str:
    """The median, with the smallest and greatest value in brackets."""
    if summary is None:
        return "–"
    return f"{figure(summary['median'])} ({figure(summary['min'])}–{figure(summary['max'])})"


def verdict(entry: Entry) -> str:
    """``met``, ``missed``, ``no goal``, or the reason why the case was not run or failed."""
    if "not_run" in entry:
        return f"not run: {entry['not_run']}"
    if "failed" in entry:
        return f"failed: {entry['failed']}"
    if entry["met"] is None:
        return "no goal"
    return "met" if entry["met"] else "missed"


def row(entry: Entry) -> tuple[str, ...]:
    """The cells of a case's row: title, peer, unit, the figures of rw_sql and of the peer, the ratio with its spread,
    the goal, the difference between rounds, the verdict."""
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
    """The machine, and the versions of the programs, with which the figures were measured."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"Spark {version('pyspark')}, Delta {version('delta-spark')}, delta-rs {version('deltalake')}"
    )


def known_rounds(file: Path) -> dict[str, tuple[Round, ...]]:
    """The stored rounds of a results file, by the names of their cases."""
    return {name: tuple(Round(**one) for one in entry.get("rounds", ())) for name, entry in _entries(file).items()}


def _entries(file: Path) -> dict[str, Entry]:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write_json(outcomes: Sequence[Outcome], file: Path, cases: Mapping[str, Case]) -> dict[str, Entry]:
    """Writes one entry per case and returns all entries. Entries that were not measured in this run stay if their cases
    still exist. Their goals and verdicts come from the present definitions of the cases."""
    known = {name: judged(entry, cases[name]) for name, entry in _entries(file).items() if name in cases}
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    known.update({outcome.case.name: {**outcome.as_json(), "measured": day} for outcome in outcomes})
    file.write_text(json.dumps(known, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    return known


def judged(entry: Entry, case: Case) -> Entry:
    """A stored entry with its figures, and with the title, goal and verdict by the present definition of its case."""
    if "not_run" in entry or "failed" in entry:
        outcome = Outcome(case=case, not_run=entry.get("not_run"), failed=entry.get("failed"))
        return {**outcome.as_json(), **{key: entry[key] for key in ("measured",) if key in entry}}
    outcome = Outcome(
        case=case,
        ours=(entry["ours"]["median"],),
        peer=(entry["peer"]["median"],) if entry["peer"] else (),
        rounds=tuple(Round(**one) for one in entry["rounds"]),
    )
    return {**entry, **outcome.judged()}


def write_page(entries: Mapping[str, Entry], page: Path) -> None:
    """Replaces the list of goals and the table, which are between marks of the page. The rest of the page is written by
    hand."""
    days = sorted({str(entry["measured"]) for entry in entries.values() if "measured" in entry})
    measured = " and ".join(part for part in (", ".join(days[:-1]), *days[-1:]) if part)
    lines = [f"Measured on {measured or 'no day'}: {machine()}. Median (least–greatest).", ""]
    lines += ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row(entry)) + " |" for _, entry in sorted(entries.items())]
    settings = settings_lines({name: entry.get("settings", {}) for name, entry in sorted(entries.items())})
    if settings:
        lines += ["", "Settings:", "", *(f"- {line}" for line in settings)]
    text = _between(page.read_text(encoding="utf-8"), BEGIN, END, lines)
    page.write_text(_between(text, GOALS_BEGIN, GOALS_END, goal_lines(entries)), encoding="utf-8")


def _between(text: str, begin: str, end: str, lines: Sequence[str]) -> str:
    """Returns the text, in which ``lines`` replace the lines between the two marks. Each mark occurs once in the
    text."""
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.split(end, 1)[1]}"


def goal_lines(entries: Mapping[str, Entry]) -> list[str]:
    """The lines about goals. The first line contains the number of goals that are met. The next lines list the missed
    goals, each with its figure, grouped by the text of ``bench/limits.toml`` that explains them. The last lines list
    the goals without a figure."""
    with_goal = {name: entry for name, entry in sorted(entries.items()) if entry["goal"] != "–"}
    met = sum(entry["met"] is True for entry in with_goal.values())
    lines = [f"{met} of {len(with_goal)} goals are met."]
    limits, missed = limits_of(), dict[str, list[str]]()
    for name, entry in with_goal.items():
        if entry["met"] is False:
            missed.setdefault(_limit(name, limits), []).append(_missed(entry))
    if missed:
        lines[0] += " The others are listed below, grouped by the limit that explains them, with the attempts made:"
    for limit, cases in missed.items():
        lines += ["", f"- {limit}", *(f"    - {case}" for case in cases)]
    absent = [f"- {_case(entry)}: not run ({entry['not_run']})." for entry in with_goal.values() if "not_run" in entry]
    return [*lines, *(["", "Goals without a figure:", "", *absent] if absent else [])]


def _missed(entry: Entry) -> str:
    if "failed" in entry:
        return f"{_case(entry)}: the case failed ({entry['failed']})."
    figures = [float(one["reached"]) for one in entry["rounds"]]
    told = figure(median(figures)) + ("" if entry["peer"] else f" {entry['unit']}")
    if len(figures) > 1:
        told += f" (rounds {', '.join(figure(one) for one in figures)})"
    if (entry["drift"] or 0) > STEADY:
        told += f"; the rounds differ by {entry['drift']:.0%} (at most {STEADY:.0%} is allowed)"
    return f"{_case(entry)}: {told}; the goal is {entry['goal']}."


def limits_of(file: Path = LIMITS) -> Mapping[str, str]:
    """The texts of ``bench/limits.toml`` or a similar file: title and text in one line, by their pattern of case
    names."""
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["limit"]
    return {
        pattern: f"**{entry['title']}.** {' '.join(entry['text'].split())}"
        for entry in entries
        for pattern in entry["cases"]
    }


def _limit(name: str, limits: Mapping[str, str]) -> str:
    found = (text for pattern, text in limits.items() if fnmatchcase(name, pattern))
    return next(found, "`bench/limits.toml` has no reason yet.")


def _case(entry: Entry) -> str:
    return str(entry["title"]) + (f", compared with {entry['against']}" if entry["against"] else "")


def settings_lines(settings: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for each group of cases with the same settings; cases without settings are omitted."""
    named: dict[str, list[str]] = {}
    for name, each in settings.items():
        if each:
            named.setdefault("; ".join(f"{key} = {value}" for key, value in each.items()), []).append(f"`{name}`")
    return [f"{', '.join(names)}: {told}" for told, names in named.items()]


def write_plot(entries: Mapping[str, Entry], file: Path) -> None:
    """Draws the share of its goal that each case uses."""
    bars = {
        name: (float(entry["share"]), bool(entry["met"]))
        for name, entry in entries.items()
        if entry.get("share") is not None
    }
    file.write_text(plot(bars), encoding="utf-8")


def describe(case: Case) -> str:
    """One line for ``--list``."""
    return f"{case.name:32} {case.title}" + (f" [{case.peer}]" if case.peer else "")
