"""Omits the tests whose server is not installed, and names them in the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


class MissingServer:
    """A plugin of pytest for the tests of one server.

    ``lacks`` is a function that returns True for a test whose server is missing. ``why`` names the missing program, and
    states how to install it.
    """

    def __init__(self, name: str, why: str, lacks: Callable[[pytest.Item], bool]) -> None:
        self._key, self._why, self._lacks = f"omitted: {name}", why, lacks
        self._omitted: list[str] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Omits only the tests whose server is missing."""
        omitted = [item for item in items if self._lacks(item)]
        if omitted:
            self._omitted = [item.nodeid for item in omitted]
            config.hook.pytest_deselected(items=omitted)
            names = set(self._omitted)
            items[:] = [item for item in items if item.nodeid not in names]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Passes a worker's list of omitted tests to the process that writes the summary."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[self._key] = self._omitted

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the list of omitted tests from a worker. All workers omit the same tests."""
        self._omitted = getattr(node, "workeroutput", {}).get(self._key, []) or self._omitted

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the names of the omitted tests."""
        if self._omitted:
            terminalreporter.section(f"left out: {self._why}")
            for name in self._omitted:
                terminalreporter.write_line(name)


def register(config: pytest.Config, name: str, why: str, lacks: Callable[[pytest.Item], bool]) -> None:
    """Registers the plugin for a server: see :class:`MissingServer`."""
    config.pluginmanager.register(MissingServer(name, why, lacks), f"missing-{name}")
