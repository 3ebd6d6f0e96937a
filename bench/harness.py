"""Runs benchmarks: rw_sql and a peer in alternation, in one process, on one machine.

Cases are modules in ``bench/cases`` with a tuple ``CASES``. The result is the ratio of medians. Its spread is that of
the ratios of neighbouring runs: if the machine slows down half-way, the spread shows it and the result does not change.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from bench.yardstick import TIMED, yardstick

LEAST_RUNS = 5
"""The minimum number of measurements of each side."""

STEADY = 0.15
"""The maximum distance of the rounds' medians from their own median: a figure that varies more meets no goal."""

ROUNDS = 3
"""The number of rounds that are compared: the more rounds, the greater the largest deviation among them."""

Figures = float | Mapping[str, float]
"""The result of one measurement: a figure, or several figures of the same run, by the names of their cases."""


class NotRunError(Exception):
    """A case cannot be measured here; the text says why (a peer that does not install). It counts neither as met nor as
    missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A case that is ready to run: each call is one measurement in the case's unit.

    Cases with the same ``open`` are measured together, and a call returns the figures of all of them. ``peer`` is None
    if the goal is a figure and not a comparison. ``settings`` are printed, so that a reader can judge whether both
    sides were set up as their documentation advises. ``warm_up`` runs once instead of the case's warm-ups, if less than
    a measurement is enough. ``not_run`` says, by name, why cases of the group cannot be measured here. ``beside`` is a
    yardstick in any unit, called last in each run: bare times are compared with it from round to round.
    """

    ours: Callable[[], Figures]
    peer: Callable[[], Figures] | None = None
    warm_up: Callable[[], object] | None = None
    beside: Callable[[], float] = yardstick
    not_run: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One benchmark.

    ``goal`` bounds the ratio ours ÷ peer, or ours itself if there is no peer. It is the minimum with ``is_more_better``
    (throughput), otherwise the maximum; None if only the figure is of interest. ``open`` sets both sides up and removes
    them. ``is_quick`` cases take seconds and make up ``make bench-quick``. ``is_manual`` cases take many minutes: a run
    of all cases omits them.
    """

    name: str
    title: str
    peer: str
    unit: str
    goal: float | None
    open: Callable[[], AbstractContextManager[Pair]]
    is_more_better: bool = False
    is_quick: bool = False
    is_manual: bool = False
    runs: int = LEAST_RUNS
    warm_ups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The medians of one round: the figure that the goal bounds, and the one that is compared from round to round."""

    reached: float
    steady: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A case's measurements, in the order taken; ``not_run`` says why there are none, ``failed`` what went wrong.

    ``beside`` contains the yardstick's figures, one per run. ``rounds`` contains the rounds, if there were several.
    """

    case: Case
    ours: tuple[float, ...] = ()
    peer: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    not_run: str | None = None
    failed: str | None = None
    rounds: tuple[Round, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Median of ours over median of the peer's; None without a peer."""
        return median(self.ours) / median(self.peer) if self.ours and self.peer else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The smallest and greatest ratio of neighbouring runs."""
        ratios = [ours / peer for ours, peer in zip(self.ours, self.peer, strict=True)] if self.peer else []
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def reached(self) -> float | None:
        """The figure that the goal bounds: the ratio, or ours if there is no peer; None if the case was not run."""
        if not self.ours:
            return None
        return self.ratio if self.ratio is not None else median(self.ours)

    @property
    def steady(self) -> float | None:
        """The figure compared from round to round: the one that the goal bounds, or for a bare time its ratio to the
        yardstick's."""
        if self.reached is None or self.peer or not self.beside or self.case.unit not in TIMED:
            return self.reached
        return self.reached / median(self.beside)

    @property
    def drift(self) -> float | None:
        """How far the rounds' medians are from their own median at most; None if there was one round.

        A bare time may follow the machine: it counts as stable if it is stable itself, or if its ratio to the
        yardstick's is.
        """
        if len(self.rounds) < 2:
            return None
        return min(_drift([one.reached for one in self.rounds]), _drift([one.steady for one in self.rounds]))

    @property
    def is_met(self) -> bool | None:
        """True if a stable figure reaches the goal; None if the case was not run or has no goal."""
        if self.reached is None:
            return None if self.failed is None else False
        if self.case.goal is None:
            return None
        if self.drift is not None and self.drift > STEADY:
            return False
        reached = median(one.reached for one in self.rounds) if self.rounds else self.reached
        return reached >= self.case.goal if self.case.is_more_better else reached <= self.case.goal

    def as_rounds(self) -> tuple[Round, ...]:
        """The rounds of the outcome, also if it is the only one; none if the case was not run."""
        if self.rounds or self.reached is None or self.steady is None:
            return self.rounds
        return (Round(reached=self.reached, steady=self.steady),)

    def after(self, rounds: Iterable[Round]) -> Outcome:
        """This outcome as the last of several rounds, of which the newest count."""
        return replace(self, rounds=(*rounds, *self.as_rounds())[-ROUNDS:])

    @property
    def goal(self) -> str:
        """The goal in words: ``≤ 0.6``, ``≤ 0.3 s``, ``–``."""
        if self.case.goal is None:
            return "–"
        sign = "≥" if self.case.is_more_better else "≤"
        is_ratio = self.peer if self.ours else self.case.peer
        return f"{sign} {self.case.goal:g}" + ("" if is_ratio else f" {self.case.unit}")

    def as_json(self) -> dict[str, Any]:
        """The case's entry in results.json."""
        told = self._described()
        if self.not_run is not None:
            return {**told, "not_run": self.not_run, "met": None}
        if self.failed is not None:
            return {**told, "failed": self.failed, "met": False}
        return {
            **told,
            "ratio": self.ratio,
            "spread": self.spread,
            "ours": _summary(self.ours),
            "peer": _summary(self.peer) if self.peer else None,
            "share": self._share(),
            "drift": self.drift,
            "rounds": [asdict(one) for one in self.as_rounds()],
            "met": self.is_met,
            "settings": dict(self.settings),
        }

    def judged(self) -> dict[str, Any]:
        """The parts of the entry that depend on the case as it is defined now, for an outcome with stored rounds."""
        return {**self._described(), "share": self._share(), "met": self.is_met}

    def _described(self) -> dict[str, Any]:
        return {"title": self.case.title, "against": self.case.peer, "unit": self.case.unit, "goal": self.goal}

    def _share(self) -> float | None:
        """The used share of what the goal allows: up to 1 the goal is met."""
        if self.reached is None or self.case.goal is None:
            return None
        return self.case.goal / self.reached if self.case.is_more_better else self.reached / self.case.goal


def _drift(found: Sequence[float]) -> float:
    middle = median(found)
    return max(abs(one - middle) / middle for one in found)


def _summary(values: tuple[float, ...]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def find_cases(folder: Path) -> Iterator[Case]:
    """Every case of the modules in ``bench/cases``, by module name. Raises ValueError if two have the same name."""
    seen: set[str] = set()
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda found: found.name):
        for case in importlib.import_module(f"bench.cases.{module.name}").CASES:
            if case.name in seen:
                raise ValueError(f"two benchmark cases are called {case.name!r}")
            seen.add(case.name)
            yield case


def together(cases: Sequence[Case]) -> Iterator[tuple[Case, ...]]:
    """The cases, grouped into tuples that are measured together."""
    for _, group in groupby(cases, key=lambda case: case.open):
        yield tuple(group)


def measure(cases: Sequence[Case], *, runs: int | None = None) -> list[Outcome]:
    """Runs cases that are measured together: warm-ups first, then both sides in turn.

    A NotRunError from the set-up or a measurement becomes the outcome of all of them.
    """
    first = cases[0]
    try:
        with first.open() as pair:
            ours, peer, beside = _round(pair, first.warm_ups, runs or first.runs)
            settings, not_run = dict(pair.settings), pair.not_run
    except NotRunError as reason:
        return [Outcome(case=case, not_run=str(reason)) for case in cases]
    return [
        Outcome(case=case, not_run=not_run[case.name])
        if case.name in not_run
        else Outcome(
            case=case,
            ours=tuple(_figures(case, ours)),
            peer=tuple(_figures(case, peer)),
            beside=tuple(beside),
            settings=settings,
        )
        for case in cases
    ]


def joined(rounds: Sequence[Outcome]) -> Outcome:
    """Several measurements of a case as one. If a round was not run or failed, that is the outcome of all."""
    for one in rounds:
        if one.reached is None:
            return one
    if len(rounds) == 1:
        return rounds[0]
    return replace(
        rounds[-1],
        ours=tuple(found for one in rounds for found in one.ours),
        peer=tuple(found for one in rounds for found in one.peer),
        beside=tuple(found for one in rounds for found in one.beside),
        rounds=tuple(found for one in rounds for found in one.as_rounds()),
    )


def _round(pair: Pair, warm_ups: int, runs: int) -> tuple[list[Figures], list[Figures], list[float]]:
    ours: list[Figures] = []
    peer: list[Figures] = []
    beside: list[float] = []
    if pair.warm_up:
        pair.warm_up()
    for _ in range(0 if pair.warm_up else warm_ups):
        pair.ours()
        if pair.peer:
            pair.peer()
    for _ in range(runs):
        ours.append(pair.ours())
        if pair.peer:
            peer.append(pair.peer())
        beside.append(pair.beside())
    return ours, peer, beside


def _figures(case: Case, side: Sequence[Figures]) -> Iterator[float]:
    """The figures of one case; none if a peer does not measure it."""
    for found in side:
        if not isinstance(found, Mapping):
            yield found
        elif case.name in found:
            yield found[case.name]
