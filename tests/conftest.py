"""Fixtures that all tests share: recorded results, and errors in the form in which they are recorded."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing

from tests.support.java import java_options
from tests.support.load import busy_neighbours, draw_sample
from tests.support.seeds import draw_long, seed_of
from tests.support.spark_settings import java_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.errors import SqlError

FIXTURES = Path(__file__).parent / "fixtures"

# Every Spark of the tests inherits these settings, including those of child processes.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{java_options()} {java_properties()}")

# The JVMs of the tests have their own archive of classes, and write none when they end.
os.environ.setdefault("RW_SQL_CLASS_ARCHIVE", "off")

# CliRunner builds the options of all commands again for each command line, in a tenth of a second.
setattr(typer.testing, "_get_command", cache(typer.main.get_command))  # noqa: B010 - a private name


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--record`` rewrites the recorded results of the fixtures. Review the diff of these files like code.

    ``--warehouse s3`` keeps the warehouses of the integration tests in an object store.
    """
    parser.addoption("--record", action="store_true", default=False, help="rewrite recorded results")
    parser.addoption("--draw", type=int, default=0, metavar="N", help="run one in N of the long tests, drawn by --seed")
    parser.addoption("--busy", type=int, default=0, metavar="N", help="run N busy processes beside the tests")
    parser.addoption("--busy-nice", type=int, default=0, metavar="N", help="the niceness of the busy processes")
    parser.addoption("--sample", type=int, default=0, metavar="K", help="run K crash and live tests, drawn by --seed")
    parser.addoption("--seed", type=int, metavar="N", help="what draws; by default the commit's day")
    parser.addoption(
        "--warehouse",
        choices=("local", "s3"),
        default=os.environ.get("RW_SQL_TEST_WAREHOUSE", "local"),
        help="where the integration tests keep their warehouses",
    )


_NEIGHBOURS = ExitStack()
_TERMINAL: list[Any] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    """Starts the busy processes that ``--busy`` requests, once for all workers."""
    if not hasattr(session.config, "workerinput"):
        config = session.config
        _NEIGHBOURS.enter_context(busy_neighbours(config.getoption("--busy"), config.getoption("--busy-nice")))
        _TERMINAL.append(config.pluginmanager.get_plugin("terminalreporter"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Prints the name of a failed test at once, because a run that is stopped prints no summary."""
    if report.failed and _TERMINAL and _TERMINAL[0] is not None:
        _TERMINAL[0].write_line(f" failed: {report.nodeid}")


def pytest_sessionfinish() -> None:
    """Ends the busy processes."""
    _NEIGHBOURS.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draws the tests of this run, and puts the files whose tests take longest first. Otherwise, a single worker could
    still run such a file after all other workers have finished.

    Several workers share the tests by files (``--dist loadfile``), because the tests of a file share its fixtures.
    """
    if config.getoption("--sample"):
        _keep(config, items, draw_sample(items, config.getoption("--sample"), config.getoption("--seed") or 0))
    elif config.getoption("--draw"):
        _keep(config, items, draw_long(items, config.getoption("--draw"), seed_of(config)))
    first = {item.path for item in items if item.get_closest_marker("alone") is not None}
    items.sort(key=lambda item: item.path not in first)


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    known = {item.nodeid for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in known])
    items[:] = kept


def rendered(error: SqlError) -> str:
    """An error in the form in which fixtures record it."""
    return f"{error.render()}\nSQLSTATE: {error.sqlstate}\n"


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with the recorded text at a path, or records it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--record"):
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"nothing is recorded at {path}: run pytest --record"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def interrupted_as_by_default() -> Iterator[None]:
    """Makes Ctrl-C raise KeyboardInterrupt, as by default. A job that a shell script runs in the background ignores
    Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
