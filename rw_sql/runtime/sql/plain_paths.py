"""Compares paths that users write in statements with the paths of the warehouse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rw_sql.plan.checks.spark_changes import path_refusal

if TYPE_CHECKING:
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.syntax.dialect.spark_changes import Changed

_OWN_FOLDERS = frozenset({"data", "checkpoints", "rw_catalog"})
"""The folders of a warehouse that only rw_sql writes. Spark may store the user's own tables in other folders of the
warehouse."""


def plain_path(path: str) -> str:
    """Normalizes a path or URI. The result is the same for all spellings of a location, even if they use different
    schemes or symbolic links."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.lower() != "file" and rest.startswith("//"):
        scheme = "s3" if scheme.lower() in ("s3a", "s3n") else scheme.lower()
        return f"{scheme}:{rest.rstrip('/')}"
    local = rest if colon and scheme.lower() == "file" else path
    return os.path.realpath(f"/{local.lstrip('/')}" if local.startswith("/") else local)


def refuse_own_path(context: Context, change: Changed) -> None:
    """Raises SqlError if the path in a statement is the warehouse itself, or is in one of the folders that only rw_sql
    writes. Paths in other folders of the warehouse are allowed, because Spark may store the user's own tables in these
    folders."""
    path = change.parts[-1]
    root, wanted = plain_path(context.warehouse.uri), plain_path(path)
    if wanted != root and not wanted.startswith(f"{root}/"):
        return
    first, _, rest = wanted.removeprefix(root).strip("/").partition("/")
    if first and first not in _OWN_FOLDERS:
        return
    number = rest.partition("/")[0].rpartition("-")[2]
    record = context.metastore.snapshot().get(int(number)) if number.isdecimal() else None
    raise path_refusal(change, path, record)
