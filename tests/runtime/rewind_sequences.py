"""Random histories of a source with views. A history has reads, moves, rewinds, reverted rewinds, and kills during
rewinds. After each step, the rows are compared with the expected rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.runtime.rewind.restore import carry_out
from rw_sql.runtime.support import faults
from tests.runtime.mini_streams import MiniWarehouse, expected
from tests.support.ageing import Pauses

if TYPE_CHECKING:
    from collections.abc import Mapping

REWIND_POINTS = (
    "rewind.before_log",
    "rewind.fenced",
    "rewind.after_log",
    "rewind.after_table",
    "rewind.checkpoint_copied",
    "rewind.checkpoint_moved",
    "rewind.checkpoint_removed",
    "rewind.checkpoint_replaced",
    "rewind.after_checkpoint",
    "rewind.before_note",
    "rewind.after_note",
)
"""The fault points at which a process is killed during a REWIND, between any two of its steps."""

MAKING_POINTS = (
    "rewind_point.before_copy",
    "rewind_point.after_copy",
    "rewind_point.before_note",
    "rewind_point.after_note",
)
"""The fault points at which a process is killed while it makes a rewind point."""

SWAP_POINTS = ("rebuild.before_swap", "rebuild.after_swap")
"""The fault points at which a process is killed at the end of a REBUILD."""


class Killed(BaseException):
    """Raised in place of a kill of this process."""


def live_on(folder: Path, *, seed: int, length: int) -> Mapping[str, int]:
    """Runs one history. Raises AssertionError if the log or the views differ from their expected content."""
    lot = random.Random(seed)
    mini = MiniWarehouse.at(folder / "warehouse")
    for name in ("plain", "counts", "pairs"):
        mini.create_view(name)
    mini.create_view("plain_top", of="plain")
    mini.run("ALTER SYSTEM SET rewind_point_timeout = '50ms'")
    mini.ingest(lot.randrange(1, 6))
    mini.read_views()
    ids, at = list(range(mini.position())), mini.position()
    points: dict[int, tuple[list[int], int]] = {}
    counts: Counter[str] = Counter()
    is_read = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "kill", _die)
        for _ in range(length):
            deed = lot.choice(["read", "move", "move", "rewind", "rewind"])
            counts[deed] += 1
            match deed:
                case "read":
                    batches = [lot.randrange(1, 5) for _ in range(lot.randrange(1, 3))]
                    mini.ingest(*batches)
                    ids += range(at, at + sum(batches))
                    at += sum(batches)
                    is_read = lot.random() < 0.8
                    if is_read:
                        mini.read_views()
                case "move":
                    to = lot.randrange(0, at + 3)
                    mini.run("PAUSE SOURCE s", f"INJECT SOURCE OFFSETS s VALUES ('1-0' = {to}) ALLOW DUPLICATES, GAPS")
                    points[mini.epoch()] = (list(ids), at)
                    at = to
                    mini.settle()
                    mini.run("RESUME SOURCE s")
                    mini.ingest(3)
                    ids += range(at, at + 3)
                    at += 3
                    mini.read_views()
                    is_read = True
                case _:
                    if points:
                        target = lot.choice(sorted(points))
                        now = (list(ids), at)
                        back = points[target]
                        try:
                            mini.run(f"REWIND SOURCE s TO OPERATION {target}")
                        except SqlError as error:
                            if error.code != "RW334":
                                raise
                            counts["refused"] += 1
                            continue
                        points[mini.epoch()] = now
                        ids, at = list(back[0]), back[1]
                        counts["kills"] += _kill(mini, lot)
                        mini.settle()
                        is_read = True
            _require(mini, ids, at, f"seed {seed}, after {dict(counts)}", is_read=is_read)
        mini.read_views()
        _require(mini, ids, at, f"seed {seed}, at the end", is_read=True)
    return dict(counts)


def _die(name: str) -> None:
    raise Killed(name)


def _kill(mini: MiniWarehouse, lot: random.Random) -> int:
    """Kills the process that carries out a REWIND, up to three times."""
    kills, pauses = 0, Pauses(seed=lot.randrange(1000))
    (rewind,) = mini.context.metastore.snapshot().all("rewind")
    for _ in range(lot.randrange(0, 4)):
        faults.arm(f"{lot.choice(REWIND_POINTS)}@{lot.randrange(1, 3)}")
        try:
            with mini.owning():
                carry_out(mini.context, mini.context.metastore.snapshot(), rewind)
        except Killed:
            kills += 1
            pauses.pass_over(Path(mini.context.warehouse.uri))
        else:
            break
        finally:
            faults.arm("")
    return kills


def _require(mini: MiniWarehouse, ids: list[int], at: int, told: str, *, is_read: bool) -> None:
    assert mini.log_ids() == sorted(ids), told
    assert mini.position() == at, told
    if is_read:
        wanted = expected(ids)
        assert {name: mini.rows(name) for name in wanted} == wanted, told
        assert mini.rows("plain_top") == wanted["plain"], told
