"""How a benchmark is run: our way and a peer's in alternation, in one process run, on one machine.

Cases are modules in ``bench/cases`` with a tuple ``CASES``. What is compared is the ratio of medians; its spread is
that of the ratios of neighbouring runs, so that a machine that slows down half-way shows as spread and not as a result.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

LEAST_RUNS = 5
"""How often each side is measured at least."""


class NotRunError(Exception):
    """A case cannot be measured here; its text says why (a peer that does not install). It counts neither way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What a case measures, ready to run: each call is one measurement in the case's unit.

    ``peer`` is None where the goal is a figure and not a comparison. ``settings`` are printed, so that a reader can
    judge whether both sides were set up as their documentation advises.
    """

    ours: Callable[[], float]
    peer: Callable[[], float] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One benchmark.

    ``goal`` bounds the ratio ours ÷ peer, or ours itself where there is no peer; with ``is_more_better`` (throughput)
    it is the least that will do, else the most. ``open`` sets both sides up and clears away. ``is_quick`` cases take
    seconds and make up ``make bench-quick``.
    """

    name: str
    title: str
    peer: str
    unit: str
    goal: float
    open: Callable[[], AbstractContextManager[Pair]]
    is_more_better: bool = False
    is_quick: bool = False
    runs: int = LEAST_RUNS
    warm_ups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A case's measurements, in the order taken; ``not_run`` says why there are none."""

    case: Case
    ours: tuple[float, ...] = ()
    peer: tuple[float, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    not_run: str | None = None

    @property
    def ratio(self) -> float | None:
        """Median of ours over median of the peer's; None without a peer."""
        return median(self.ours) / median(self.peer) if self.ours and self.peer else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Least and greatest ratio of neighbouring runs."""
        ratios = [ours / peer for ours, peer in zip(self.ours, self.peer, strict=True)] if self.peer else []
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; None where the case was not run."""
        if not self.ours:
            return None
        reached = self.ratio if self.ratio is not None else median(self.ours)
        return reached >= self.case.goal if self.case.is_more_better else reached <= self.case.goal

    @property
    def goal(self) -> str:
        """The goal in words: ``≤ 0.6``, ``≤ 0.3 s``."""
        sign = "≥" if self.case.is_more_better else "≤"
        return f"{sign} {self.case.goal:g}" + ("" if self.peer else f" {self.case.unit}")

    def as_json(self) -> dict[str, Any]:
        """The case's entry in results.json."""
        if self.not_run is not None:
            return {"not_run": self.not_run, "goal": self.goal, "met": None}
        return {
            "ratio": self.ratio,
            "spread": self.spread,
            "ours": _summary(self.ours),
            "peer": _summary(self.peer) if self.peer else None,
            "unit": self.case.unit,
            "goal": self.goal,
            "met": self.is_met,
        }


def _summary(values: tuple[float, ...]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def find_cases(folder: Path) -> Iterator[Case]:
    """Every case of the modules in ``bench/cases``, by module name. Raises ValueError where two share a name."""
    seen: set[str] = set()
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda found: found.name):
        for case in importlib.import_module(f"bench.cases.{module.name}").CASES:
            if case.name in seen:
                raise ValueError(f"two benchmark cases are called {case.name!r}")
            seen.add(case.name)
            yield case


def measure(case: Case, *, runs: int | None = None) -> Outcome:
    """Runs a case: warm-ups first, then ours and the peer's in turn. NotRunError from its set-up becomes an outcome."""
    ours: list[float] = []
    peer: list[float] = []
    try:
        with case.open() as pair:
            for _ in range(case.warm_ups):
                pair.ours()
                if pair.peer:
                    pair.peer()
            for _ in range(runs or case.runs):
                ours.append(pair.ours())
                if pair.peer:
                    peer.append(pair.peer())
            settings = dict(pair.settings)
    except NotRunError as reason:
        return Outcome(case=case, not_run=str(reason))
    return Outcome(case=case, ours=tuple(ours), peer=tuple(peer), settings=settings)
