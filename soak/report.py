"""The page about a soak."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from proof.harness import tried_commit
from soak.places import MasterKind, WarehouseKind

if TYPE_CHECKING:
    from soak.operator import Operator
    from soak.processes import Processes

ROOT = Path(__file__).parents[1]

_TEXT = (
    "`make soak{options}` runs `rw-sql serve` on one warehouse, a Kafka broker and a schema registry. A second process "
    "sends statements: it creates and drops views, injects offsets, moves the source between topics, forgets its "
    "offsets and undoes operations. Meanwhile, one fault after another disturbs the processes, the clock, and the disk "
    "or the store of the warehouse. After each step, a keyed table and the views are compared with rows that are "
    "computed from the steps alone. One of the views has every row of the source's log."
)

_WAREHOUSES = {WarehouseKind.DISK: "on a disk", WarehouseKind.S3: "in an S3 store (moto)"}
_MASTERS = {MasterKind.LOCAL: "local[2]", MasterKind.CLUSTER: "a standalone cluster of two workers"}


def page_of(warehouse: WarehouseKind) -> Path:
    """The page of the runs with such a warehouse."""
    return ROOT / "docs" / "proof" / ("soak.md" if warehouse is WarehouseKind.DISK else f"soak-{warehouse}.md")


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run was and what it found. ``left_out`` has the reason for each fault that is left out."""

    seed: int
    warehouse: WarehouseKind
    master: MasterKind
    faults: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    longest_seconds: float = 0.0
    failure: str | None = None
    is_held: bool = False
    _started: float = field(default_factory=time.monotonic)

    def note_processes(self, processes: Processes) -> None:
        """Takes the facts about the processes."""
        self.starts = processes.starts

    def note_operator(self, operator: Operator) -> None:
        """Takes the facts about the statements, the faults and the comparisons."""
        self.counts, self.longest_seconds = operator.counts, operator.longest_seconds

    def write(self, page: Path) -> None:
        """Writes the page."""
        page.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """The page as Markdown."""
        others = {name: count for name, count in sorted(self.counts.items()) if name not in self.faults}
        facts = {
            "warehouse": _WAREHOUSES[self.warehouse],
            "Spark master": _MASTERS[self.master],
            "seed": self.seed,
            "minutes": f"{(time.monotonic() - self._started) / 60:.0f}",
            "owners started": self.starts,
            **{name: f"{count:,}" for name, count in others.items()},
            "longest wait for one statement or FLUSH": f"{self.longest_seconds:.0f} s",
            "result": "held" if self.failure is None else "failed: " + self.failure.splitlines()[-1],
            "commit": tried_commit(ROOT),
            "ended": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        }
        options = "" if self.warehouse is WarehouseKind.DISK else f" WAREHOUSE={self.warehouse}"
        options += "" if self.master is MasterKind.LOCAL else f" RUN_ON={self.master}"
        lines = [
            "# Soak" if self.warehouse is WarehouseKind.DISK else "# Soak in an object store",
            "",
            *textwrap.wrap(_TEXT.format(options=options), 110),
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items()),
            "",
            "| Fault | Count |",
            "|---|---|",
            *(f"| {name} | {self.counts[name]} |" for name in self.faults),
            "",
            "Left out:",
            "",
            *(f"- {name}: {reason}" for name, reason in self.left_out.items()),
            "",
        ]
        return "\n".join(lines)
