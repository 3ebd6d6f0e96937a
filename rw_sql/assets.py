"""Reads the three data folders (``grammar``, ``catalog``, ``sources``) from a checkout, a wheel or a zip.

In a wheel, the folders are ``rw_sql/_assets/<folder>``. In a checkout, the folders are beside the package. In both
cases, the module reads the folders through ``importlib.resources`` and not by file path. The folders can therefore also
be read if rw_sql is imported from a zip.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Folder = Literal["grammar", "catalog", "catalog/views", "sources"]


def _folder(name: Folder) -> Traversable:
    packed = files("rw_sql").joinpath("_assets", name)
    if packed.is_dir():
        return packed
    return Path(__file__).parent.parent / name


@cache
def read_asset(folder: Folder, name: str) -> str:
    """The text of one data file. Raises FileNotFoundError if the file does not exist."""
    return _folder(folder).joinpath(name).read_text(encoding="utf-8")


@cache
def list_assets(folder: Folder, suffix: str) -> tuple[str, ...]:
    """The file names in a data folder that end in ``suffix``, sorted."""
    return tuple(sorted(entry.name for entry in _folder(folder).iterdir() if entry.name.endswith(suffix)))
