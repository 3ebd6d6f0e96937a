"""The faults of a soak: what each does to the processes, the store, the disk or the clock, and the order in which they
come."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.ageing import HOUR, WEEK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from soak.processes import Processes
    from soak.readings import Readings

_SHARE = 0.5
"""The share of the steps that have a fault, once each fault has had its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its name, how often it is drawn in relation to others, and a function that causes it and ends it again.

    The function returns False if there was nothing to disturb. If ``needs_large`` is true, the fault is meant for the
    tasks of a large batch.
    """

    name: str
    weight: int
    cause: Callable[[], bool]
    needs_large: bool = False


@dataclass(slots=True)
class Faults:
    """Draws faults: first each fault once, in random order; then by weight, in half of the steps."""

    faults: Sequence[Fault]
    draw: random.Random
    _left: list[Fault] = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.draw.sample(list(self.faults), len(self.faults))

    @property
    def is_first_round(self) -> bool:
        """True until each fault has had its turn."""
        return bool(self._left)

    def next(self) -> Fault | None:
        """The fault of a step; None if the step has none."""
        if self._left:
            return self._left.pop()
        if self.draw.random() >= _SHARE:
            return None
        return self.draw.choices(self.faults, [fault.weight for fault in self.faults])[0]

    def put_back(self, fault: Fault) -> None:
        """Draws a fault again later that has disturbed nothing."""
        self._left.insert(0, fault)


def faults_of(
    processes: Processes, readings: Readings | None, draw: random.Random
) -> tuple[list[Fault], Mapping[str, str]]:
    """The faults that are possible with these processes, and the reason why each other fault is left out."""
    found: list[Fault] = []
    left_out: dict[str, str] = {}
    place, over = processes.place, processes.is_over

    def short() -> float:
        return draw.uniform(1, 20)

    def long() -> float:
        return draw.uniform(60, 120)

    def add(name: str, weight: int, cause: Callable[[], bool], why_not: str = "", *, needs_large: bool = False) -> None:
        if why_not:
            left_out[name] = why_not
        else:
            found.append(Fault(name=name, weight=weight, cause=cause, needs_large=needs_large))

    add("Python process killed", 4, lambda: processes.kill("python"))
    add("JVM killed", 4, lambda: processes.kill("jvm"))
    add("Python process and JVM killed", 2, lambda: processes.kill("both"))
    add("owner stopped by SIGSTOP", 3, lambda: processes.suspend(short()))
    add("owner stopped by SIGSTOP for over a minute", 1, lambda: processes.suspend(long()))
    add("owner away for over a minute", 1, lambda: processes.away(long()))
    no_age = "" if place.store is None else "the times that an object store gives to its objects cannot be moved back"
    add("owner away for an hour", 1, lambda: processes.away(1, older=HOUR), no_age)
    add("owner away for a week", 1, lambda: processes.away(1, older=WEEK + HOUR), no_age)
    add("clock of the owner an hour ahead", 1, lambda: processes.shift_clock(HOUR, short()))
    add("clock of the owner an hour behind", 1, lambda: processes.shift_clock(-HOUR, short()))
    add("clock of the owner some minutes ahead or behind", 1, lambda: processes.shift_clock(_minutes(draw), short()))
    add("broker killed", 3, lambda: processes.lose_broker(short()))
    add("broker away for over a minute", 1, lambda: processes.lose_broker(long()))
    no_cluster = "" if place.cluster else "the master is local"
    add("executor killed", 3, lambda: processes.kill_executor(draw), no_cluster, needs_large=True)
    add(
        "worker killed and started again", 2, lambda: processes.lose_worker(draw, short()), no_cluster, needs_large=True
    )
    add("worker away for over a minute", 1, lambda: processes.lose_worker(draw, long()), no_cluster, needs_large=True)
    if readings is None:
        left_out["registry killed, registry that answers 503"] = processes.why_no_registry
    else:
        add("registry killed", 2, lambda: readings.kill(over, short()))
        add("registry that answers 503 for over a minute", 1, lambda: readings.refuse(over, long()))
    _add_of_the_store(add, processes, draw)
    no_disk = place.lacks if place.store is None else "the warehouse is in an object store"
    add("disk full", 2, lambda: processes.obstruct("full", draw.uniform(5, 60)), no_disk)
    add("disk read-only", 2, lambda: processes.obstruct("read-only", draw.uniform(5, 60)), no_disk)
    left_out["jumps of the JVM's clock"] = "only the clock of the owner's Python process can be shifted by itself"
    return found, left_out


def _add_of_the_store(add: Callable[..., None], processes: Processes, draw: random.Random) -> None:
    store = processes.place.store
    if store is None:
        add("errors, slowness and silence of an object store", 0, lambda: False, "the warehouse is on a disk")
        return

    add("object store that answers 503", 2, lambda: processes.during(store.failing, draw.uniform(5, 60)))
    add(
        "object store that answers 503 to half of the requests",
        2,
        lambda: processes.during(lambda: store.failing(0.5), 60),
    )
    add(
        "object store that performs writes and answers 500 to a third",
        1,
        lambda: processes.during(lambda: store.losing_answers(0.3), 30),
    )
    add(
        "slow object store", 2, lambda: processes.during(lambda: store.slow(draw.uniform(0.3, 1)), draw.uniform(10, 60))
    )
    add("object store that does not answer", 1, lambda: processes.during(store.silent, draw.uniform(10, 60)))


def _minutes(draw: random.Random) -> float:
    return draw.choice((-1, 1)) * draw.uniform(30, 600)


class Suffering(threading.Thread):
    """A fault that begins some seconds after its start. ``has_disturbed`` is valid after :meth:`end`."""

    def __init__(self, fault: Fault, delay: float) -> None:
        super().__init__(name="soak-fault")
        self.fault = fault
        self.has_disturbed = False
        self._delay = delay
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Causes the fault."""
        threading.Event().wait(self._delay)
        try:
            self.has_disturbed = self.fault.cause()
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
            self._error = error

    def end(self) -> None:
        """Waits for the end of the fault. Raises the error that prevented the fault or its end."""
        self.join()
        if self._error is not None:
            raise self._error
