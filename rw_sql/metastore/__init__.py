"""Stores the catalog in Delta tables. The catalog consists of frozen records, which are committed by compare-and-set
and read as immutable snapshots.

The table ``operations`` is the log of all changes to the catalog. Snapshots, and the other tables of the catalog, are
derived from this log. The tables ``runtime_*`` store facts about the running jobs.

This package may import only ``assets``, ``object_stores`` and ``errors``. Begin with ``records`` (the stored values)
and ``store`` (the commits). ``codec`` derives the JSON form from the dataclasses in ``records``. A new field therefore
only needs a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.metastore.catalog_file import catalog_from_json, catalog_to_json
from rw_sql.metastore.codec import (
    BeforeImage,
    apply_before,
    before_from_json,
    changes_from_json,
    changes_to_json,
    record_from_json,
    record_to_json,
)
from rw_sql.metastore.commits import Committed, ConcurrentCommit
from rw_sql.metastore.snapshot import Snapshot

if TYPE_CHECKING:
    from rw_sql.metastore.job_store import JobStore
    from rw_sql.metastore.store import Metastore

__all__ = [
    "BeforeImage",
    "Committed",
    "ConcurrentCommit",
    "JobStore",
    "Metastore",
    "Snapshot",
    "apply_before",
    "before_from_json",
    "catalog_from_json",
    "catalog_to_json",
    "changes_from_json",
    "changes_to_json",
    "record_from_json",
    "record_to_json",
]

_HOMES = {"JobStore": "rw_sql.metastore.job_store", "Metastore": "rw_sql.metastore.store"}
"""The modules of the classes that need delta-rs and PyArrow.

These modules are imported at the first use of a class, because ``pip install rw-sql`` without extras installs neither
library.
"""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rw_sql.metastore' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
