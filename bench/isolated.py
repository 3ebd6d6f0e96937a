"""Measures each group of cases in a separate process, so that a group is not affected by the warm JVM or the full heap
of the group before it."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from bench.harness import Case, Outcome, Pair, find_cases, joined, measure

CASES = Path(__file__).parent / "cases"


def measure_apart(cases: Sequence[Case], *, runs: int | None = None, rounds: int = 1) -> list[Outcome]:
    """Measures like :func:`bench.harness.measure`, in ``rounds`` rounds, each in a separate process.

    An exception of a case becomes the case's outcome, and the case's goal is not met. If this process is ended, it ends
    the other process, and everything that the other process has started.
    """
    found = [_round_apart(cases, runs) for _ in range(rounds)]
    return [joined(of_one) for of_one in zip(*found, strict=True)]


def _round_apart(cases: Sequence[Case], runs: int | None) -> list[Outcome]:
    spawn = get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_send, args=(sender, [case.name for case in cases], runs))
    process.start()
    sender.close()
    try:
        found: list[Outcome] = receiver.recv()
    except EOFError:
        process.join()
        return [Outcome(case=case, failed=f"the process ended with {process.exitcode}") for case in cases]
    except BaseException:
        # This also runs after an exception such as Ctrl-C. Otherwise, the other process would continue to measure.
        process.terminate()
        raise
    finally:
        process.join()
    return [replace(outcome, case=case) for case, outcome in zip(cases, found, strict=True)]


def leave_in_order() -> None:
    """Makes SIGTERM end this process by an exception, so that the process stops its brokers and child processes.
    Without the exception, these would continue to run."""

    def leave(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


def _send(sender: Connection, names: Sequence[str], runs: int | None) -> None:
    leave_in_order()
    by_name = {case.name: case for case in find_cases(CASES)}
    cases = [by_name[name] for name in names]
    try:
        found = measure(cases, runs=runs)
    except Exception:  # noqa: BLE001
        # An exception of a case is its outcome; the other cases are still measured.
        traceback.print_exc()
        failed = traceback.format_exc(limit=0).strip().splitlines()[-1]
        found = [Outcome(case=case, failed=failed) for case in cases]
    # The set-up of a case cannot be sent to another process.
    sender.send([replace(outcome, case=replace(outcome.case, open=_elsewhere)) for outcome in found])


def _elsewhere() -> AbstractContextManager[Pair]:
    raise RuntimeError("this case was measured in another process")
