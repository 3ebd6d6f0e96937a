"""Lets the workers of a run share the compilation of the test modules.

On a fresh checkout, pytest compiles each test module when a worker imports it, and stores the result. All workers
import the modules in the same order, so they would compile each module at the same time. With this plugin, each worker
first imports the modules from another place in this order on. It then finds the results of the other workers for the
other modules.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def in_turn(files: Sequence[Path], worker: int, workers: int) -> tuple[Path, ...]:
    """The files in the order in which a worker imports them. The workers begin at places with equal distances."""
    start = len(files) * worker // workers
    return (*files[start:], *files[:start])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Imports the test modules that a worker will collect. pytest then finds them imported."""
    inputs: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if inputs is None:
        return
    number = int(inputs["workerid"].removeprefix("gw"))
    for file in in_turn(_test_files(session.config), number, inputs["workercount"]):
        folder = str(file.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        # pytest imports the module again and reports the error.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(file.stem)


def _test_files(config: pytest.Config) -> list[Path]:
    """The test modules in the folders of the command line, except those in ignored folders."""
    root = config.rootpath
    ignored = [root / each for each in config.getoption("ignore") or ()]
    paths = [root / str(each).partition("::")[0] for each in config.args]
    files = {file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [])}
    return sorted(file for file in files if not any(file.is_relative_to(each) for each in ignored))
