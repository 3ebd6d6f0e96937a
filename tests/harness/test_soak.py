"""The soak: its faults come in turn, its page names all of them, and the store, the clock and the disk fail as told."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from soak import __main__ as command
from soak.faults import Fault, Faults, Suffering, faults_of
from soak.places import MasterKind, Place, WarehouseKind, open_place
from soak.processes import Processes
from soak.report import Report
from soak.shifted_clock import write_shift
from tests.support.s3_store import BUCKET, S3Store
from tests.support.small_disk import Disk, why_no_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def some_faults(number: int) -> list[Fault]:
    return [Fault(name=f"fault {n}", weight=n, cause=lambda: True) for n in range(number)]


def test_each_fault_comes_once_before_any_comes_again() -> None:
    faults = Faults(some_faults(9), random.Random(1))
    drawn = [fault.name for fault in (faults.next() for _ in range(9)) if fault is not None]
    assert sorted(drawn) == sorted(fault.name for fault in faults.faults)
    later = [faults.next() for _ in range(200)]
    assert None in later
    assert {fault.name for fault in later if fault is not None} == {f"fault {n}" for n in range(1, 9)}


def test_a_fault_that_has_disturbed_nothing_is_drawn_again() -> None:
    faults = Faults(some_faults(2), random.Random(1))
    first = faults.next()
    assert first is not None
    faults.put_back(first)
    assert [faults.next() is first, faults.next() is first] == [False, True]


def test_an_error_of_a_fault_is_raised_where_the_fault_is_waited_for() -> None:
    def cause() -> bool:
        raise OSError("the mount failed")

    suffering = Suffering(Fault(name="disk full", weight=1, cause=cause), 0)
    with pytest.raises(OSError, match="the mount failed"):
        suffering.end()


def test_a_fault_that_the_place_does_not_have_is_left_out_by_name(tmp_path: Path) -> None:
    place = Place(warehouse=str(tmp_path), serve_words=(), lacks="only root may mount a file system")
    found, left_out = faults_of(Processes(tmp_path, place, "no registry"), None, random.Random(1))
    names = {fault.name for fault in found}
    assert {"JVM killed", "clock of the owner an hour ahead"} <= names
    assert left_out["disk full"] == left_out["disk read-only"] == "only root may mount a file system"
    assert left_out["executor killed"] == left_out["worker killed and started again"] == "the master is local"
    assert "no registry" in left_out.values()
    assert not names & set(left_out)


def test_the_page_has_each_fault_with_its_count_and_what_is_left_out() -> None:
    report = Report(seed=3, warehouse=WarehouseKind.S3, master=MasterKind.CLUSTER)
    report.faults, report.left_out = ("JVM killed", "slow object store"), {"disk full": "no disk"}
    report.counts.update({"JVM killed": 2, "steps": 1_200})
    lines = report.text().splitlines()
    assert {"| JVM killed | 2 |", "| slow object store | 0 |", "| steps | 1,200 |", "- disk full: no disk"} <= set(
        lines
    )
    assert "make soak WAREHOUSE=s3 RUN_ON=cluster" in report.text()
    assert lines.count("| JVM killed | 2 |") == 1


def test_a_soak_whose_broker_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_processes: Processes) -> None:
        raise AssertionError("the broker did not start")

    monkeypatch.setattr(command, "keep_tidy", lambda: None)
    monkeypatch.setattr(command, "why_no_registry", lambda: "no registry")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(Processes, "start", start)
    page = tmp_path / "page.md"
    with pytest.raises(typer.Exit) as ended:
        command.main(minutes=1, seed=1, warehouse=WarehouseKind.DISK, master=MasterKind.LOCAL, only="", page=page)
    assert ended.value.exit_code == 1
    assert "| result | failed: the broker did not start |" in page.read_text()


def test_the_clock_of_a_process_jumps_and_jumps_back(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    program = (
        "import sys, time; from pathlib import Path; from soak.shifted_clock import shift_clock\n"
        "shift_clock(Path(sys.argv[1]))\n"
        "for _ in sys.stdin: print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(file)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def shifts() -> list[float]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        told = [float(word) for word in child.stdout.readline().split()]
        return [told[0] - time.time(), told[1] - time.time(), told[2] - time.monotonic()]

    for seconds in (0.0, 3600.0, -3600.0, 0.0):
        write_shift(file, seconds)
        deadline = time.monotonic() + 20
        while (found := shifts())[0] != pytest.approx(seconds, abs=5):
            assert time.monotonic() < deadline, found
        assert found[1:] == [pytest.approx(seconds, abs=5), pytest.approx(0, abs=5)]
    child.stdin.close()
    assert child.wait(20) == 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[S3Store]:
    made = S3Store(tmp_path)
    yield made
    made.stop()


def ask(store: S3Store, method: str, name: str, *, seconds: float = 20) -> int:
    """The status of the answer to one request; 0 without an answer in time."""
    body = b"text" if method == "PUT" else None
    request = urllib.request.Request(
        f"{store.endpoint}/{BUCKET}/{name}", data=body, method=method, headers={"Content-Type": "text/plain"}
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except TimeoutError:
        return 0


@pytest.mark.s3
def test_a_store_fails_loses_answers_is_slow_and_is_silent(store: S3Store) -> None:
    with store.failing():
        assert [ask(store, "PUT", "a"), ask(store, "GET", "a")] == [503, 503]
    assert ask(store, "GET", "a") == 404
    with store.losing_answers():
        assert ask(store, "PUT", "b") == 500
    assert store.client.get_object(Bucket=BUCKET, Key="b")["Body"].read() == b"text"
    with store.slow(0.3):
        began = time.monotonic()
        assert ask(store, "GET", "a") == 404
        assert time.monotonic() - began >= 0.3
    with store.silent():
        assert ask(store, "GET", "a", seconds=0.3) == 0
    assert ask(store, "GET", "a") == 404
    assert [request.status for request in store.requests() if request.path.endswith("/a")][:4] == [503, 503, 404, 404]


@pytest.mark.skipif(bool(why_no_disk()), reason=why_no_disk())
def test_a_disk_is_full_without_taking_its_size_in_memory(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", "8g")
    try:
        kept = disk.folder / "kept"
        kept.write_bytes(bytes(10_000))
        disk.obstruct("full")
        assert (disk.folder / "fill").stat().st_size < 10_000 if (disk.folder / "fill").exists() else True
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(b"1")
        disk.free()
        (disk.folder / "more").write_bytes(bytes(1_000_000))
        disk.obstruct("read-only")
        with pytest.raises(OSError, match="Read-only"):
            (disk.folder / "more").write_bytes(b"1")
        disk.free()
        assert kept.stat().st_size == 10_000
    finally:
        disk.end()


def test_a_local_place_on_a_disk_starts_no_server(tmp_path: Path) -> None:
    with open_place(tmp_path, WarehouseKind.DISK, MasterKind.LOCAL) as place:
        assert Path(place.warehouse).is_relative_to(tmp_path)
        assert (place.store, place.cluster, place.is_slow) == (None, None, False)
        assert (place.disk is None) == bool(place.lacks)
