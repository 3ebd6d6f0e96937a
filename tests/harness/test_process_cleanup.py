"""However a run of tests ends, no process that it started continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli import process_cleanup
from rw_sql.runtime.support.processes import process_start

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
_SECONDS = 120.0

BROKER = """
pytest_plugins = ["tests.support.broker"]

def test_waits(broker):
    print("started", broker.pid, flush=True)
    input()
"""
CHILDREN = """
import subprocess, sys

def test_waits():
    # A child that has a child, the second in a session of its own.
    inner = "import time; time.sleep(600)"
    outer = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {inner!r}], "
    outer += "start_new_session=True); print('started', p.pid, flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", outer])
    print("started", child.pid, flush=True)
    input()
"""


def run_of(folder: Path, text: str, started: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Starts a run of a waiting test as a shell would; returns it and the processes that it reports to have started."""
    test = folder / "test_waits.py"
    test.write_text(text, encoding="utf-8")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "-p", "conftest"),
            *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--confcutdir", str(ROOT), str(test)),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A run that nohup has started ignores SIGHUP, a run in the background of a script ignores SIGINT, and so would
        # all processes that these runs start.
        preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGHUP, signal.SIGINT)],
    )
    assert process.stdout is not None
    pids: list[int] = []
    said = ""
    while len(pids) < started:
        line = process.stdout.readline()
        said += line
        assert line, said
        words = line.split()
        if "started" in words:
            pids.append(int(words[words.index("started") + 1]))
    return process, pids


def read(path: Path) -> list[bytes]:
    """The words of a command line in /proc; empty for a process that has ended."""
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def wait_until(is_met: Callable[[], bool]) -> None:
    """Returns once the condition holds; fails after a time limit."""
    never, deadline = threading.Event(), time.monotonic() + _SECONDS
    while not is_met():
        assert time.monotonic() < deadline
        never.wait(0.05)


@pytest.mark.kafka
def test_a_killed_run_leaves_no_broker(tmp_path: Path) -> None:
    process, pids = run_of(tmp_path, BROKER, 1)
    assert process_start(pids[0])
    process.kill()
    wait_until(lambda: not process_start(pids[0]))
    process.communicate()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_children_of_children_end_with_a_run(number: signal.Signals, tmp_path: Path) -> None:
    process, pids = run_of(tmp_path, CHILDREN, 2)
    assert all(map(process_start, pids))
    process.send_signal(number)
    wait_until(lambda: not any(map(process_start, pids)))
    process.communicate()


@pytest.mark.long
def test_a_keeper_that_was_killed_too_is_made_up_for(tmp_path: Path) -> None:
    process, pids = run_of(tmp_path, CHILDREN, 2)
    mark = f"{process.pid}:{process_start(process.pid)}:".encode()
    commands = {path.parent.name: read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    keepers = [int(pid) for pid, words in commands.items() if words[-2:-1] and words[-2].startswith(mark)]
    assert len(keepers) == 1
    os.kill(keepers[0], signal.SIGKILL)
    wait_until(lambda: not process_start(keepers[0]))
    process.kill()
    process.wait()
    assert all(map(process_start, pids))
    assert set(pids) <= set(process_cleanup.end_orphans())
    assert not any(map(process_start, pids))
    process.communicate()


def test_what_others_started_is_left_alone() -> None:
    """Processes of another running run are left alone, and so are those of another container, whose process ids are
    meaningless here."""
    elsewhere = {**os.environ, process_cleanup.MARK: "1:1:pid:[0]"}
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=elsewhere)
    own = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ended = process_cleanup.end_orphans()
        assert not {own.pid, other.pid} & set(ended)
        assert own.poll() is None
        assert other.poll() is None
    finally:
        for process in (own, other):
            process.communicate(b"\n")
