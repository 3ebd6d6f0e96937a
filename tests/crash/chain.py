"""One warehouse that survives a chain of kills. Each process is killed at a point of its own, and the next process
continues. The next process starts at once, an hour later or a week later, by random choice.

After the last process, the contents of the log and the views are compared with the contents computed from the steps
alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, add_partitions, create_topic, produce
from rw_sql.metastore import Metastore
from rw_sql.runtime.support.processes import is_process_alive
from tests.crash.child import EXIT_NOTICED
from tests.crash.scenario import KEYS, LABELS, PARTITIONS, SOURCE_ID, STEPS, Say, record, times_read, value
from tests.support.ageing import Pauses
from tests.support.waits import LAST_RESORT_SECONDS as _GONE_SECONDS
from tests.support.waits import LIFE_SECONDS as _LIFE_SECONDS

ROOT = Path(__file__).parents[2]
START = "start"
"""The place of a kill between the start of a process and the start of its jobs."""
END = "end"
"""The place of a kill while a process that has completed the workflow stops its jobs."""

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The place of a kill and its target: ``python``, its ``jvm``, or ``both``.

    ``point`` is a fault point (``name@n``: at its n-th passing). The fault point is armed when the process reaches
    ``at``: the label of a statement, ``after <label>`` for the time after this statement, START or END. With
    ``reconnects``, a process whose JVM was killed connects again by itself.
    """

    point: str
    at: str
    kills: str = "python"
    reconnects: bool = False

    @property
    def step(self) -> int:
        """The index of the step at which the fault point is armed; -1 for the start."""
        if self.at in (START, END):
            return -1 if self.at == START else len(STEPS)
        label = self.at.removeprefix("after ")
        at = next(at for at, step in enumerate(STEPS) if isinstance(step, Say) and step.label == label)
        return at + (label != self.at)

    def __str__(self) -> str:
        return f"{self.point} ({self.at}) of {self.kills}"


@dataclass(slots=True)
class SplitIdentity:
    """The observations about one process: its exit status, the point at which it was killed, and its reports."""

    status: int
    died_at: str | None = None
    noticed: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


class Chain:
    """A warehouse, its topics, and the processes that run the workflow one after the other."""

    def __init__(self, folder: Path, bootstrap: str, *, seed: int = 0) -> None:
        self.folder = folder
        self.pauses = Pauses(seed=seed)
        self.bootstrap = bootstrap
        self.warehouse = folder / "warehouse"
        mark = uuid.uuid4().hex[:8]
        self.topics = {name: f"{name}.{mark}" for name in PARTITIONS}
        self.filled = {name: [0] * partitions for name, partitions in PARTITIONS.items()}
        self.lives = 0
        self.living_jvms = 0
        self.orphans: list[int] = []
        for name, partitions in PARTITIONS.items():
            create_topic(bootstrap, self.topics[name], partitions)

    def run(self, kills: Sequence[Kill]) -> Mapping[str, int]:
        """Runs every kill and then the rest of the workflow, and compares. Raises AssertionError."""
        started = time.monotonic()
        with reaping_orphans():
            for kill in kills:
                self.suffer(kill)
            if not (kills and kills[-1].reconnects):
                last = self.live(None)
                assert last.status == 0, self.story(f"the last process ended with {last.status}")
            self.reap()
        self.compare()
        return {
            "processes killed": len(kills),
            "JVMs that outlived their Python process into the next one's start": self.living_jvms,
            "records compared": sum(times_read().values()),
            "seconds": int(time.monotonic() - started),
        }

    def suffer(self, kill: Kill) -> None:
        """Runs one process up to its kill. Asserts that SIGKILL came at the kill's point, and hit the intended
        target."""
        life = self.live(kill)
        assert life.died_at == kill.point.partition("@")[0], self.story(f"{kill}: not reached, status {life.status}")
        lease = Metastore.open(str(self.warehouse)).jobs.lease()
        assert lease is not None, self.story(f"{kill}: nobody ever owned the warehouse")
        if kill.kills == "jvm":
            assert life.noticed["jvm_status"] == -signal.SIGKILL, self.story(f"{kill}: {life.noticed}")
            assert life.noticed["released"], self.story(f"{kill}: the lease was not given back")
            assert set(life.noticed["codes"]) == {"RW410"}, self.story(f"{kill}: {life.noticed}")
            assert len(life.noticed["codes"]) == 3, self.story(f"{kill}: {life.noticed}")
            assert life.noticed["seconds"] < 5, self.story(f"{kill}: {life.noticed}")
            assert life.status == (0 if kill.reconnects else EXIT_NOTICED), self.story(f"{kill}: status {life.status}")
            return
        assert life.status == -signal.SIGKILL, self.story(f"{kill}: status {life.status}")
        if kill.kills == "python":
            self.living_jvms += is_process_alive(lease.jvm_pid, lease.jvm_start)
            self.orphans.append(lease.jvm_pid)
        else:
            ended = reaped(lease.jvm_pid)
            assert ended is None or (os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL), self.story(
                f"{kill}: its JVM ended with {ended}"
            )

    def live(self, kill: Kill | None) -> SplitIdentity:
        """Starts a process and answers its requests until it ends."""
        pause = self.pauses.pass_over(self.warehouse)
        self.lives += 1
        ours, theirs = socket.socketpair()
        ours.settimeout(_LIFE_SECONDS)
        task = {
            "warehouse": str(self.warehouse),
            "bootstrap": self.bootstrap,
            "topics": self.topics,
            "kill": None if kill is None else {"point": kill.point, "step": kill.step, "kills": kill.kills},
            "reconnects": kill is not None and kill.reconnects,
            "channel": theirs.fileno(),
            "dump": str(self.folder / "dump.json"),
        }
        self.log(self.lives).write_text(f"this process begins {pause}\n", encoding="utf-8")
        with self.log(self.lives).open("ab") as log, ours, theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.child", json.dumps(task)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            life = SplitIdentity(status=0)
            try:
                self.serve(ours, life)
                life.status = process.wait(_LIFE_SECONDS)
            except (TimeoutError, subprocess.TimeoutExpired):
                raise AssertionError(self.story(f"{kill}: it neither died nor ended")) from None
            finally:
                process.kill()
                process.wait()
        return life

    def serve(self, ours: socket.socket, life: SplitIdentity) -> None:
        """Answers a process until the process closes its end of the channel. The JVM of the process does not inherit
        the channel."""
        with ours.makefile("rw", encoding="utf-8") as channel:
            for line in channel:
                message = json.loads(line)
                if "produce" in message:
                    self.fill(message["produce"], message["ends"])
                    channel.write("done\n")
                    channel.flush()
                elif "grow" in message:
                    self.grow(message["grow"], message["partitions"])
                    channel.write("done\n")
                    channel.flush()
                elif "died_at" in message:
                    life.died_at = message["died_at"]
                elif "codes" in message:
                    life.noticed = message
                elif "says" in message:
                    life.said.append(message["says"])

    def fill(self, topic: str, ends: Sequence[int]) -> None:
        """Produces the records that are missing up to ``ends``, the ends of the topic's partitions."""
        filled = self.filled[topic]
        missing = [
            Record(value=value(topic, partition, offset), partition=partition)
            for partition, end in enumerate(ends)
            for offset in range(filled[partition], end)
        ]
        if missing:
            produce(self.bootstrap, self.topics[topic], missing)
            self.filled[topic] = [max(pair) for pair in zip_longest(filled, ends, fillvalue=0)]

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions to a topic, unless the topic has this number of partitions already."""
        filled = self.filled[topic]
        if len(filled) < partitions:
            add_partitions(self.bootstrap, self.topics[topic], partitions)
            self.filled[topic] = filled + [0] * (partitions - len(filled))

    def reap(self) -> None:
        """Waits for the JVMs that outlived their Python processes."""
        for pid in self.orphans:
            reaped(pid)

    def compare(self) -> None:
        """Asserts that the log and both views contain exactly the rows that follow from the steps. Raises
        AssertionError."""
        expected = times_read()
        kinds = [row.kind for row in Metastore.open(str(self.warehouse)).operations() if row.kind != "DISCOVER SPLITS"]
        assert len(kinds) == len(LABELS), self.story(f"{len(LABELS)} statements led to {kinds}")
        assert_same(self.log_rows(), expected, self.story("the log"))
        rows = json.loads((self.folder / "dump.json").read_text(encoding="utf-8"))
        thirds = Counter({(topic, int(part), int(off)): times for topic, part, off, times in rows["thirds"]})
        wanted = Counter({place: times for place, times in expected.items() if record_v(*place) % 3 == 0})
        assert_same(thirds, wanted, self.story("view thirds"))
        per_key = dict.fromkeys(range(KEYS), (0, 0))
        for place, times in expected.items():
            n, total = per_key[record_k(*place)]
            per_key[record_k(*place)] = (n + times, total + times * record_v(*place))
        found = {k: (n, total) for k, n, total in rows["per_key"]}
        assert found == per_key, self.story(f"view per_key: {found}, not {per_key}")

    def log_rows(self) -> Counter[tuple[str, int, int]]:
        """The number of times that each record is in the source's log."""
        table = DeltaTable(str(self.warehouse / "data" / str(SOURCE_ID) / "1")).to_pyarrow_table(
            columns=["_rw_split", "_rw_offset", "v", "topic", "k"]
        )
        names = {real: name for name, real in self.topics.items()}
        found: Counter[tuple[str, int, int]] = Counter()
        for split, offset, v, topic, k in zip(*(column.to_pylist() for column in table.columns), strict=True):
            real, _, partition = split.rpartition(":")
            place = (names[real], int(partition), int(offset))
            assert record(*place) == {"topic": topic, "k": k, "v": v}, f"{place} holds {topic}, {k}, {v}"
            found[place] += 1
        return found

    def log(self, life: int) -> Path:
        """The file with the output of a process."""
        return self.folder / f"life-{life}.log"

    def story(self, what: str) -> str:
        """A description of the failure, with the end of the last process's output."""
        path = self.log(self.lives)
        tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-40:] if path.exists() else []
        return "\n".join([what, f"(process {self.lives} of {self.folder})", *tail])


def record_k(topic: str, partition: int, offset: int) -> int:
    """The value of column ``k`` of a record, by which the view ``per_key`` groups."""
    k = record(topic, partition, offset)["k"]
    assert isinstance(k, int)
    return k


def record_v(topic: str, partition: int, offset: int) -> int:
    """The value of column ``v`` of a record, which the views filter and sum."""
    v = record(topic, partition, offset)["v"]
    assert isinstance(v, int)
    return v


def assert_same(found: Counter[tuple[str, int, int]], wanted: Counter[tuple[str, int, int]], what: str) -> None:
    """Raises AssertionError if a record occurs too often or not often enough. The error names such records."""
    lost = wanted - found
    repeated = found - wanted
    assert not lost, f"lost {lost.total()}, as {sorted(lost.items())[:5]} … {sorted(lost.items())[-5:]} in {what}"
    assert not repeated, (
        f"repeated {repeated.total()}, as {sorted(repeated.items())[:5]} … {sorted(repeated.items())[-5:]} in {what}"
    )


@contextmanager
def reaping_orphans() -> Iterator[None]:
    """A context manager. On Linux, the JVM of a process that was killed becomes a child of this process, so that this
    process gets the JVM's exit status."""
    is_linux = sys.platform == "linux"
    if is_linux:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        if is_linux:
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def reaped(pid: int) -> int | None:
    """The exit status of an orphan; None if it is not a child of this process. Waits for it."""
    never = threading.Event()
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        try:
            gone, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if gone:
            return status
        assert time.monotonic() < deadline, f"JVM {pid} outlived its Python process by {_GONE_SECONDS} s"
        never.wait(0.05)
