"""Ctrl-C that arrives in a finalizer or in a weak reference's callback, where Python ignores exceptions."""

from __future__ import annotations

import signal
import sys
import time
import weakref

import pytest

from rw_sql.cli.interface.lost_interrupts import resent_interrupts
from tests.support.waits import LAST_RESORT_SECONDS

pytestmark = pytest.mark.usefixtures("interrupted_as_by_default")


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Referred:
    pass


class Broken:
    def __del__(self) -> None:
        raise ValueError("broken")


def go_on() -> None:
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.001)


def test_an_interrupt_in_a_finalizer_is_raised_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    def release_and_go_on() -> None:
        held = [Finalized()]
        held.clear()
        go_on()

    with resent_interrupts(), pytest.raises(KeyboardInterrupt):
        release_and_go_on()
    assert "Exception ignored" not in capsys.readouterr().err


def test_an_interrupt_in_a_weak_references_callback_is_raised_behind_it() -> None:
    def release_and_go_on() -> None:
        held = [Referred()]
        reference = weakref.ref(held[0], lambda _reference: signal.raise_signal(signal.SIGINT))
        held.clear()
        assert reference() is None
        go_on()

    with resent_interrupts(), pytest.raises(KeyboardInterrupt):
        release_and_go_on()


def test_other_errors_of_finalizers_are_reported_as_before() -> None:
    reported = []
    before = sys.unraisablehook

    def report(ignored: sys.UnraisableHookArgs) -> None:
        reported.append(str(ignored.exc_value))

    sys.unraisablehook = report
    try:
        with resent_interrupts():
            held = [Broken()]
            held.clear()
        restored = sys.unraisablehook
    finally:
        sys.unraisablehook = before
    assert reported == ["broken"]
    assert restored is report
