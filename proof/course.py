"""Collects figures during a long run, and checks that the mean of each figure does not grow from the third quarter of
the run to the last."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

MOST_GROWTH = 0.05


@dataclass(slots=True)
class Course:
    """Measured figures, each with the number of the step after which it was measured."""

    samples: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def note(self, step: int, **figures: float) -> None:
        """Adds figures that were measured after a step."""
        for name, figure in figures.items():
            self.samples.setdefault(name, []).append((step, figure))

    def mean(self, name: str, low: int, high: int) -> float:
        """The mean of the figures measured after step ``low``, up to step ``high``."""
        return statistics.fmean(figure for step, figure in self.samples[name] if low < step <= high)

    def require_level(self, steps: int, besides: Collection[str] = ()) -> dict[str, float]:
        """Returns the means of the last two quarters. Raises AssertionError if the mean of a figure that is not in
        ``besides`` grew by more than MOST_GROWTH."""
        facts: dict[str, float] = {}
        grown: list[str] = []
        for name in self.samples:
            third, last = self.mean(name, steps // 2, steps * 3 // 4), self.mean(name, steps * 3 // 4, steps)
            facts |= {f"{name}, third quarter": round(third, 1), f"{name}, last quarter": round(last, 1)}
            if name not in besides and last > third * (1 + MOST_GROWTH):
                grown.append(name)
        assert not grown, f"{', '.join(grown)} grew: {facts}"
        return facts


def resident_mb() -> float:
    """This process's memory in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6
