"""Which processes run, on systems that hide some of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rw_sql.runtime.support import processes
from rw_sql.runtime.support.processes import is_process_alive, process_start


def test_a_process_is_known_by_its_start() -> None:
    start = process_start(os.getpid())
    assert start
    assert is_process_alive(os.getpid(), start)
    assert not is_process_alive(os.getpid(), "1")
    assert not is_process_alive(os.getpid(), "")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    assert ended.wait() == 0
    assert process_start(ended.pid) == ""


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_hidden_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    """With ``hidepid``, /proc shows only the processes of one's own user. A living owner must not count as dead,
    because two processes would then run the jobs."""

    def read(*_: object, **__: object) -> str:
        raise error

    def signal(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(os, "kill", signal)
    assert is_process_alive(4711, "123")
    assert not is_process_alive(0, "123")


def test_a_process_that_has_just_ended_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_stat", lambda _: [])
    monkeypatch.setattr(os, "kill", lambda *_: None)
    assert not is_process_alive(4711, "123")
