"""The live tests, with their warehouses in an object store, one file per seed."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from proof.harness import Facts, Proof

_ROOT = Path(__file__).parent.parent.parent
_ON_A_DISK = frozenset({"test_live_groups.py", "test_live_leaks.py"})
"""Test files that need a warehouse on a local disk. The first file starts servers on its own warehouse, and the second
file searches the local disk for secrets."""

FILES = tuple(
    file.name
    for file in sorted((_ROOT / "tests" / "integration").glob("test_live_*.py"))
    if file.name not in _ON_A_DISK
)
"""The names of the test files whose warehouses are in the place that pytest's option ``--warehouse`` selects."""


def _check(seed: int, folder: Path) -> Facts:
    name = FILES[seed]
    report = folder / "report.xml"
    command = [
        *(sys.executable, "-m", "pytest", f"tests/integration/{name}", "--warehouse", "s3"),
        *("-q", "--show-capture=no", f"--basetemp={folder / 'pytest'}", f"--junitxml={report}"),
    ]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert report.exists(), run.stdout[-4000:] + run.stderr[-4000:]
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    tests, seconds = int(suite.get("tests", "0")), round(float(suite.get("time", "0")))
    failed = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    skipped = int(suite.get("skipped", "0"))
    assert tests > 0
    assert not failed, f"{name}: {failed} of {tests} failed\n{run.stdout[-8000:]}"
    return {
        name: f"{tests - skipped} passed, {skipped} skipped, {seconds} s",
        "tests": tests - skipped,
    }


PROOF = Proof(
    name="object-store",
    claim="The live tests pass with a warehouse in an object store, as they do with one on a local disk.",
    method="Each live test file runs with its warehouses in a bucket of a server that speaks S3 (moto, in a separate "
    "process): moves, REWIND, UNDO, blocks, tables, refreshes, sinks, changes, connections, captured databases, every "
    "kind of upstream, deployments and upkeep. Spark reaches the bucket by Hadoop's S3A, delta-rs by conditional "
    "writes, everything else by fsspec.",
    seeds=range(len(FILES)),
    check=_check,
)
