"""New warehouses of the tests in this process: the tables of an empty warehouse are written as copies of files.

Hundreds of tests begin with an empty warehouse. delta-rs needs 60 ms of CPU to create the tables, and a copy needs
2 ms. Each copy has its own table ids and the time of its creation, as if its tables had just been created. The
migrations then run as usual, and find that all of them are applied. A test that uses the fixture ``created_tables``
lets the migrations create the tables, as the tests in ``tests/metastore`` do. So does every process that a test starts.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.metastore.catalog import Catalog

_TABLE_ID = re.compile(rb'"metaData":\{"id":"([^"]+)"')
_TIME = re.compile(rb'"(timestamp|createdTime)":\d+')


@cache
def _files() -> Mapping[str, bytes]:
    """The files of an empty warehouse's catalog, by their paths in it."""
    from rw_sql.metastore.catalog import load_catalog
    from rw_sql.metastore.migrations import migrate

    with tempfile.TemporaryDirectory() as folder:
        migrate(folder, load_catalog())
        found = (path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def write_copy(directory: Path) -> None:
    """Writes the catalog of an empty warehouse. ``directory`` does not exist yet.

    The files are written beside the temporary files of this process and then moved, so that another thread or process
    which opens the warehouse sees either nothing or every table. If another one has created the warehouse first, its
    files stay.
    """
    now = b'"\\1":%d' % (time.time() * 1000)
    ids: dict[bytes, bytes] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        catalog = Path(folder) / "catalog"
        for name, content in _files().items():
            path = catalog / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".json":
                for known in _TABLE_ID.findall(content):
                    content = content.replace(known, ids.setdefault(known, str(uuid.uuid4()).encode()))
                content = _TIME.sub(now, content)
            path.write_bytes(content)
        directory.parent.mkdir(parents=True, exist_ok=True)
        catalog.rename(directory)


def _copied_or_created(directory: str, catalog: Catalog) -> None:
    from rw_sql.metastore.catalog import load_catalog
    from rw_sql.metastore.migrations import migrate

    if catalog is load_catalog() and "://" not in directory and not Path(directory).exists():
        # If the copy cannot be written, migrate says what is wrong.
        with suppress(OSError):
            write_copy(Path(directory))
    migrate(directory, catalog)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Uses copies from here on, if the collected tests can open a warehouse at all."""
    store = sys.modules.get("rw_sql.metastore.store")
    if store is not None:
        store.migrate = _copied_or_created  # type: ignore[attr-defined]  # imported there


@pytest.fixture
def created_tables() -> Iterator[None]:
    """In a test with this fixture, the migrations create the tables of a new warehouse."""
    from rw_sql.metastore import migrations, store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "migrate", migrations.migrate)
        yield
