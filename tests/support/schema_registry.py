"""A schema registry for tests marked ``registry``, one for the whole session. Import it by ``pytest_plugins``.

If the server cannot be fetched, those tests are left out, and the summary names them. Tests share the registry, never a
subject: they name their topics by ``topic_name``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.schema_registry import RegistryInfo, registry_runner, start_registry, stop_registry
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEFT_OUT: pytest.StashKey[list[str]] = pytest.StashKey()
_REASON: pytest.StashKey[str] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of the registry if the registry's server cannot be fetched."""
    of_registry = [item for item in items if item.get_closest_marker("registry")]
    if not of_registry or config.option.collectonly:
        return
    try:
        registry_runner()
    except SqlError as error:
        config.stash[_LEFT_OUT] = [item.nodeid for item in of_registry]
        config.stash[_REASON] = error.message
        config.hook.pytest_deselected(items=of_registry)
        items[:] = [item for item in items if item not in of_registry]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Passes a worker's list of omitted tests to the process that writes the summary."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["registry_left_out"] = session.config.stash.get(_LEFT_OUT, [])
        told["registry_reason"] = session.config.stash.get(_REASON, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes a worker's list of omitted tests. All workers omit the same tests."""
    told = getattr(node, "workeroutput", {})
    if told.get("registry_left_out"):
        node.config.stash[_LEFT_OUT] = told["registry_left_out"]
        node.config.stash[_REASON] = told["registry_reason"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the names of the tests that were left out."""
    left_out = config.stash.get(_LEFT_OUT, [])
    if left_out:
        terminalreporter.section(f"left out: {config.stash.get(_REASON, '')}")
        for name in left_out:
            terminalreporter.write_line(name)


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryInfo]:
    """A registry on a free port."""
    folder = tmp_path_factory.mktemp("registry")
    yield start_registry(folder, port=0)
    stop_registry(folder)
