"""Installs the connector in ``examples/own_connector`` as pip would, with its package and with pip's metadata."""

from __future__ import annotations

import sys
import tomllib
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.connectors import registry
from rw_sql.connectors.ranged import PythonConnector

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_connector"


@contextmanager
def installed(site: Path) -> Iterator[PythonConnector]:
    """A context manager in which the connector is found by its entry point, in a folder that is temporarily on this
    process's path."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    information = site / "rw_sqlite-0.1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in project["entry-points"][registry.GROUP].items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines, ""]))
    (site / "rw_sqlite").symlink_to(EXAMPLE / "rw_sqlite")
    sys.path.insert(0, str(site))
    invalidate_caches()
    registry.connector_names.cache_clear()
    try:
        found = registry.connector("sqlite")
        assert isinstance(found, PythonConnector)
        yield found
    finally:
        if str(site) in sys.path:
            sys.path.remove(str(site))
        sys.modules.pop("rw_sqlite", None)
        registry.connector_names.cache_clear()
        registry._load.cache_clear()
