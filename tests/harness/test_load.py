"""Busy neighbours compute, and end with the process that started them; the sample is the same for the same seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.support.load import busy_neighbours, draw_sample
from tests.support.seeds import draw_long

ROOT = Path(__file__).parents[2]

_STARTS_AND_DIES = """
import os, signal
from tests.support.load import busy_neighbours
with busy_neighbours(2, nice=19) as pids:
    print(*pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_neighbours_run_at_their_niceness_and_end_with_the_block() -> None:
    wanted = min(19, os.nice(0) + 19)
    with busy_neighbours(2, nice=19) as pids:
        assert all(is_running(pid) for pid in pids)
        while not all(os.getpriority(os.PRIO_PROCESS, pid) == wanted for pid in pids):
            assert all(is_running(pid) for pid in pids)
    assert not any(is_running(pid) for pid in pids)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see that a process has ended")
def test_neighbours_end_when_their_parent_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTS_AND_DIES], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    while any(is_running(pid) for pid in pids):
        pass


@dataclass(frozen=True)
class Item:
    """The parts of a collected test that the sample uses."""

    nodeid: str
    path: Path
    markers: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None


def test_a_sample_depends_on_its_seed_alone_and_holds_crash_and_live_tests() -> None:
    live = [Item(f"live::{number}", Path("test_live_blocks.py")) for number in range(10)]
    crash = [Item(f"crash::{number}", Path("test_kills.py"), ("crash",)) for number in range(10)]
    others = [Item(f"other::{number}", Path("test_names.py"), ("spark",)) for number in range(10)]
    items = cast("list[pytest.Item]", [*others, *live, *crash])
    samples = [draw_sample(items, 5, seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert {len(sample) for sample in samples} == {5}
    assert not any(item.nodeid.startswith("other") for sample in samples for item in sample)
    assert draw_sample(items, 100, 1) == items[10:]


def test_each_long_test_is_drawn_by_one_seed_of_so_many_in_a_row_and_all_others_by_each() -> None:
    long = [Item(f"long::{number}", Path("test_live_blocks.py"), ("long",)) for number in range(10)]
    others = [Item(f"other::{number}", Path("test_names.py")) for number in range(5)]
    items = cast("list[pytest.Item]", [*long, *others])
    drawn = [draw_long(items, 3, seed) for seed in range(4, 7)]
    for sample in drawn:
        assert [item for item in items if item in sample] == sample
        assert sample[-5:] == items[-5:]
    assert sorted(item.nodeid for sample in drawn for item in sample[:-5]) == sorted(item.nodeid for item in items[:10])
    assert draw_long(items, 1, 7) == items


def test_of_the_tests_that_take_minutes_no_seed_draws_two_while_another_draws_none() -> None:
    items = [
        Item(f"{number}", Path("test_live_blocks.py"), ("long", "alone") if number % 4 == 0 else ("long",))
        for number in range(12)
    ]
    drawn = [draw_long(cast("list[pytest.Item]", items), 3, seed) for seed in range(3)]
    assert sorted(len([item for item in sample if int(item.nodeid) % 4 == 0]) for sample in drawn) == [1, 1, 1]


@pytest.mark.long
def test_the_tests_of_a_file_run_in_one_worker() -> None:
    command = ["tests/session", "-v", "--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *command], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    ran = re.findall(r"\[(gw\d)\] \[ *\d+%\] PASSED (\S+?)::", told)
    workers: dict[str, set[str]] = {}
    for worker, file in ran:
        workers.setdefault(file, set()).add(worker)
    assert len(workers) >= 2, told
    assert all(len(each) == 1 for each in workers.values()), workers
