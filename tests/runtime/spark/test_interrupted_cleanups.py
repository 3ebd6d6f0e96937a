"""What runs after Ctrl-C to restore the state of a session. No JVM runs here."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark import interrupts
from rw_sql.runtime.spark.interrupts import StatementInterrupted, interruptible, shielded

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("interrupted_as_by_default")


@pytest.fixture
def sent() -> list[str]:
    """The calls that have reached the JVM."""
    return []


@pytest.fixture
def call(sent: list[str]) -> Callable[[str], None]:
    """Sends a call to the JVM."""
    send: Callable[[str], None] = interrupts._guarded(sent.append)
    return send


def interrupt() -> None:
    """Ctrl-C outside of a call to the JVM."""
    signal.raise_signal(signal.SIGINT)


def test_calls_of_a_cleanup_reach_the_jvm(sent: list[str], call: Callable[[str], None]) -> None:
    def statement() -> None:
        try:
            interrupt()
        finally:
            call("drop")
            call("restore")

    with pytest.raises(KeyboardInterrupt), interruptible():
        statement()
    assert sent == ["drop", "restore"]


def test_a_second_interrupt_does_not_end_a_shielded_cleanup(sent: list[str], call: Callable[[str], None]) -> None:
    def statement() -> None:
        try:
            interrupt()
        finally:
            with shielded():
                call("drop")
                interrupt()
                call("restore")

    with pytest.raises(KeyboardInterrupt), interruptible():
        statement()
    assert sent == ["drop", "restore"]


def test_a_shielded_cleanup_keeps_the_message_of_the_interrupt(sent: list[str], call: Callable[[str], None]) -> None:
    def statement() -> None:
        try:
            try:
                interrupt()
            except KeyboardInterrupt:
                raise StatementInterrupted("committed") from None
        finally:
            with shielded():
                call("drop")

    with pytest.raises(KeyboardInterrupt, match="committed"), interruptible():
        statement()
    assert sent == ["drop"]


def test_an_interrupt_that_python_has_swallowed_is_raised_at_the_next_call(
    sent: list[str], call: Callable[[str], None]
) -> None:
    def statement() -> None:
        with suppress(KeyboardInterrupt):
            interrupt()
        call("plan")

    with pytest.raises(KeyboardInterrupt), interruptible():
        statement()
    assert sent == []


def test_a_handler_of_the_program_is_kept(sent: list[str]) -> None:
    def note(*_: object) -> None:
        sent.append("interrupted")

    before = signal.signal(signal.SIGINT, note)
    try:
        with shielded():
            interrupt()
            assert sent == ["interrupted"]
        assert signal.getsignal(signal.SIGINT) is note
    finally:
        signal.signal(signal.SIGINT, before)
