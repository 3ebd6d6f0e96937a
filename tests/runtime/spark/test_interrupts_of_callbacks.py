"""Ctrl-C that arrives where Python swallows exceptions. No JVM runs here."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import JavaObject

from rw_sql.runtime.spark import interrupts
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def handled() -> Iterator[None]:
    """The SIGINT handler between two statements of a session."""
    before = signal.signal(signal.SIGINT, interrupts._on_interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handled")
def test_an_interrupt_during_a_finalizer_is_raised_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    collected = []

    def collect(target: str) -> None:
        collected.append(target)
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # Python runs the handler here, inside of the weak reference's callback
            pass
        collected.append("to its end")

    client = SimpleNamespace(
        address="127.0.0.1",
        port=1,
        gateway_property=SimpleNamespace(auto_field=False, enable_memory_management=True),
        garbage_collect_object=collect,
    )
    held = [JavaObject("o1", client)]

    def release_and_go_on() -> None:
        held.clear()
        deadline = time.monotonic() + LAST_RESORT_SECONDS
        while time.monotonic() < deadline:
            pass

    with pytest.raises(KeyboardInterrupt):
        release_and_go_on()
    assert collected == ["o1", "to its end"]
    assert "Exception ignored" not in capsys.readouterr().err
