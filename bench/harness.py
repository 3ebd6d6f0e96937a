"""Runs benchmarks: measures rw_sql and a peer alternately, in one process, on one machine.

Cases are modules in ``bench/cases`` with a tuple ``CASES``. rw_sql and the peer are the two *sides* of a case. The
result of a case is the ratio of the medians of both sides. The result's spread is the smallest and the greatest ratio
of neighbouring runs, because a machine that slows down during the benchmark affects both sides of such a ratio alike.
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
"""The maximum distance between the median of a round and the median of all rounds' medians, as a share of the latter. A
figure that varies more misses its goal."""

ROUNDS = 3
"""The number of newest rounds that are compared. This number is fixed, because the largest deviation grows with the
number of rounds."""

Figures = float | Mapping[str, float]
"""The result of one measurement: a figure, or several figures of the same run, by the names of their cases."""


class NotRunError(Exception):
    """Raised if a case cannot be measured on this machine. The message contains the reason, such as a peer that cannot
    be installed. The case's goal then counts neither as met nor as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both sides of a case, ready to run. Each call of ``ours`` or ``peer`` is one measurement in the case's unit.

    Cases with the same ``open`` are measured together; each call then returns the figures of all of them. ``peer`` is
    None if the goal is a figure of rw_sql and not a comparison. ``settings`` are printed, so that readers can compare
    the settings of both sides with the advice in their documentation. If ``warm_up`` is given, it is called once, and
    replaces the measurements that otherwise warm both sides up. ``not_run`` has, by the name of the case, the reasons
    why cases of the group cannot be measured on this machine. ``beside`` measures a yardstick in any unit at the end of
    each run: the ratio of a time without a peer to this yardstick is compared from round to round.
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

    ``goal`` bounds the ratio ours ÷ peer, or the figure of rw_sql if there is no peer. With ``is_more_better``
    (throughput), the goal is a minimum, and otherwise a maximum; None if the case has no goal. ``open`` is a context
    manager that sets both sides up and removes them. ``is_quick`` cases take seconds, and ``make bench-quick`` runs
    only these cases. ``is_manual`` cases take many minutes: a run of all cases omits them.
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
    """The medians of one round: of the figure that the goal bounds, and of the figure that is compared from round to
    round."""

    reached: float
    steady: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A case's measurements, in the order in which they were made. ``not_run`` is the reason why the case could not be
    measured, and ``failed`` is the error of a case that failed.

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
        """The median of rw_sql's measurements divided by the median of the peer's measurements; None without a peer."""
        return median(self.ours) / median(self.peer) if self.ours and self.peer else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The smallest and greatest ratio of neighbouring runs."""
        ratios = [ours / peer for ours, peer in zip(self.ours, self.peer, strict=True)] if self.peer else []
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def reached(self) -> float | None:
        """The figure that the goal bounds: the ratio or, without a peer, rw_sql's figure; None if the case was not
        run."""
        if not self.ours:
            return None
        return self.ratio if self.ratio is not None else median(self.ours)

    @property
    def steady(self) -> float | None:
        """The figure that is compared from round to round: the figure that the goal bounds or, for a time without a
        peer, the ratio of this time to the time of the yardstick."""
        if self.reached is None or self.peer or not self.beside or self.case.unit not in TIMED:
            return self.reached
        return self.reached / median(self.beside)

    @property
    def drift(self) -> float | None:
        """The greatest distance of the rounds' medians from the median of these medians, as a share of the latter; None
        if there was only one round.

        A time without a peer depends on the machine. For such a time, the result is the smaller of two distances: the
        distance of the time itself, and the distance of the ratio of this time to the yardstick.
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
        """The rounds of the outcome; one round if there were not several; empty if the case was not run."""
        if self.rounds or self.reached is None or self.steady is None:
            return self.rounds
        return (Round(reached=self.reached, steady=self.steady),)

    def after(self, rounds: Iterable[Round]) -> Outcome:
        """Returns this outcome as the newest of several rounds. Only the newest ROUNDS rounds are kept."""
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
        """The parts of the case's entry that depend on the present definition of the case: title, goal and verdict."""
        return {**self._described(), "share": self._share(), "met": self.is_met}

    def _described(self) -> dict[str, Any]:
        return {"title": self.case.title, "against": self.case.peer, "unit": self.case.unit, "goal": self.goal}

    def _share(self) -> float | None:
        """The share of the goal that the figure uses. The goal is met if this share is at most 1."""
        if self.reached is None or self.case.goal is None:
            return None
        return self.case.goal / self.reached if self.case.is_more_better else self.reached / self.case.goal


def _drift(found: Sequence[float]) -> float:
    middle = median(found)
    return max(abs(one - middle) / middle for one in found)


def _summary(values: tuple[float, ...]) -> dict[str, float]:
    return {"min": min(values), "median": median(values), "max": max(values)}


def find_cases(folder: Path) -> Iterator[Case]:
    """Every case of the modules in ``bench/cases``, in the order of module names. Raises ValueError if two cases have
    the same name."""
    seen: set[str] = set()
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda found: found.name):
        for case in importlib.import_module(f"bench.cases.{module.name}").CASES:
            if case.name in seen:
                raise ValueError(f"two benchmark cases are called {case.name!r}")
            seen.add(case.name)
            yield case


def together(cases: Sequence[Case]) -> Iterator[tuple[Case, ...]]:
    """The cases in groups; the cases of a group are measured together."""
    for _, group in groupby(cases, key=lambda case: case.open):
        yield tuple(group)


def measure(cases: Sequence[Case], *, runs: int | None = None) -> list[Outcome]:
    """Runs cases that are measured together: warm-ups first, then both sides in turn.

    A NotRunError from the set-up or a measurement becomes the outcome of all these cases.
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
    """Several rounds of a case as one outcome. If a round was not run or failed, that round is the outcome."""
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
    """The figures of one case on one side; empty if the side does not measure this case."""
    for found in side:
        if not isinstance(found, Mapping):
            yield found
        elif case.name in found:
            yield found[case.name]
