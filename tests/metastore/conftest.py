from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore
from tests.metastore.metastore_model import Make
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def new_warehouses(created_tables: None) -> None:
    """These tests test the creation of the tables too."""


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def metastore(warehouse: str) -> Metastore:
    return Metastore.open(warehouse)


@pytest.fixture
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Starts Python code in a separate process, with its arguments in ``sys.argv``."""

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture
def died_by_kill() -> Callable[[subprocess.Popen[str]], bool]:
    def died(process: subprocess.Popen[str]) -> bool:
        process.communicate(timeout=LAST_RESORT_SECONDS)
        return process.returncode == -signal.SIGKILL

    return died
