"""Compares paths that users write in statements with those of the warehouse."""

from __future__ import annotations

import os


def plain_path(path: str) -> str:
    """Normalizes a path or URI, so that spellings of the same location with different schemes or symbolic links are
    equal."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.lower() != "file" and rest.startswith("//"):
        scheme = "s3" if scheme.lower() in ("s3a", "s3n") else scheme.lower()
        return f"{scheme}:{rest.rstrip('/')}"
    local = rest if colon and scheme.lower() == "file" else path
    return os.path.realpath(f"/{local.lstrip('/')}" if local.startswith("/") else local)
