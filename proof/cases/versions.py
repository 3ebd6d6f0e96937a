"""The most important tests, on every supported version of Spark and of Python. Each combination has a separate
environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from proof.harness import Facts, Proof, RefutedError
from rw_sql.spark_jars import SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
"""The minor versions of Python that rw_sql supports, ascending."""

ENVIRONMENTS = (
    *((spark, PYTHONS[0]) for spark in SUPPORTED),
    *((SUPPORTED[-1], python) for python in PYTHONS[1:]),
)
"""The versions of Spark and Python of each seed. Every version of Spark is combined with the oldest Python, and the
newest Spark with every version of Python."""

_VERSIONS = "import platform, pyspark; print(pyspark.__version__, platform.python_version())"


def _found(python: str) -> str:
    """The program of a minor version of Python, from the PATH or from pyenv. Raises AssertionError if no such program
    starts."""
    name = f"python{python}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [shutil.which(name), *sorted(map(str, pyenv.glob(f"{python}.*/bin/{name}")))]
    for program in found:
        # pyenv's program on the PATH fails unless pyenv's settings select the version.
        if program and not subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode:
            return program
    raise AssertionError(f"Python {python} is not installed")


def _venv(spark: str, python: str) -> str:
    return f".venv/spark-{spark}-python-{python}"


def _make(target: str, spark: str, python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [f"SPARK={spark}", f"OTHER_VENV={_venv(spark, python)}", f"PYTHON={_found(python)}"]
    return subprocess.run(
        ["make", target, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _prepare(spark: str, python: str) -> Path:
    """Creates the environment unless it exists, and returns the environment's Python. Raises AssertionError if the
    environment cannot be created."""
    made = _make("other-setup", spark, python)
    assert not made.returncode, f"the environment of Spark {spark} and Python {python}: {made.stdout[-4000:]}"
    return ROOT / _venv(spark, python) / "bin" / "python"


@contextmanager
def _prepared() -> Iterator[None]:
    """Creates the environments and fetches their jars, one after the other, because two processes that fill Ivy's cache
    at the same time may damage the cache. If an environment cannot be created, the result of its seed contains the
    reason."""
    fetched: set[str] = set()
    for spark, python in ENVIRONMENTS:
        try:
            program = _prepare(spark, python)
        except AssertionError:
            continue
        if spark not in fetched:
            subprocess.run([program, "-m", "tests.support.jars", "spark"], cwd=ROOT, capture_output=True, check=False)
            fetched.add(spark)
    yield


def _check(seed: int, folder: Path) -> Facts:
    spark, python = ENVIRONMENTS[seed]
    facts: dict[str, int | float | str] = {"Spark": spark, "Python": python, "day": f"{datetime.now(UTC):%Y-%m-%d}"}
    try:
        program = _prepare(spark, python)
    except AssertionError as error:
        raise RefutedError(str(error), facts) from error
    told = subprocess.run([program, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout.split()
    facts |= zip(("Spark", "Python"), told, strict=True)
    report = folder / "report.xml"
    options = f"-q --show-capture=no -p no:cacheprovider --basetemp={folder / 'tests'} --junitxml={report}"
    run = _make("test-core", spark, python, PYTEST_ADDOPTS=options)
    if not report.exists():
        raise RefutedError(run.stdout[-4000:], facts)
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    tests, left_out, failures, errors = (
        int(suite.get(name, "0")) for name in ("tests", "skipped", "failures", "errors")
    )
    failed = failures + errors
    facts |= {"passed": tests - left_out - failed, "failed": failed, "left out": left_out}
    facts["minutes"] = round(float(suite.get("time", "0")) / 60, 1)
    if run.returncode or failed or tests == left_out:
        raise RefutedError(f"Spark {facts['Spark']}, Python {facts['Python']}: {run.stdout[-8000:]}", facts)
    return facts


PROOF = Proof(
    name="versions",
    claim="The core of the tests passes on every supported version of Spark, and of Python.",
    method="Each row is a run of `make test-core` in a separate environment: the newest patch release of a minor "
    "version of Spark that delta-spark accepts, with a version of Python. Every Spark runs with the oldest Python, and "
    f"Spark {SUPPORTED[-1]} with every Python. All other packages have the versions of `requirements/dev.lock`. The "
    "nightly workflow runs a larger part of the tests, `make test-spark`.",
    seeds=range(len(ENVIRONMENTS)),
    check=_check,
    surroundings=_prepared,
    columns=("Spark", "Python", "passed", "failed", "left out", "minutes", "day"),
)
