"""The crash tests and the live tests, file by file, while eight other processes keep the machine busy."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from proof.harness import Facts, Proof
from tests.support.load import busy_neighbours

ROOT = Path(__file__).parents[2]
NEIGHBOURS = 8
_SECONDS = 3 * 3600


def _files() -> list[Path]:
    crash = sorted((ROOT / "tests" / "crash").glob("test_*.py"))
    return [*crash, *sorted((ROOT / "tests" / "integration").glob("test_live_*.py"))]


def _check(seed: int, folder: Path) -> Facts:
    file = _files()[seed].relative_to(ROOT)
    command = [sys.executable, "-m", "pytest", str(file), "-q", "--show-capture=no", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--basetemp", str(folder / "tests")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, f"{file}: {done.stdout[-8000:]}"
    assert passed is not None, f"{file} ran no test"
    return {"files": 1, "tests passed": int(passed.group(1))}


PROOF = Proof(
    name="busy-machine",
    claim=f"Every crash test and every live test passes with {NEIGHBOURS} busy processes beside it.",
    method=f"Each test file of tests/crash and each test_live_*.py of tests/integration runs beside {NEIGHBOURS} "
    "processes of the same priority that compute without pause. Several files may run at the same time; the "
    f"{NEIGHBOURS} processes run beside all of them.",
    seeds=range(len(_files())),
    check=_check,
    surroundings=partial(busy_neighbours, NEIGHBOURS),
)
