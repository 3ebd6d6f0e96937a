"""Fetches the jars of peers that are Java programs, by their Maven coordinates."""

from __future__ import annotations

from pathlib import Path

from bench.harness import NotRunError
from tests.support import maven


def fetched_jars(*coordinates: str, is_transitive: bool = True) -> list[Path]:
    """See :func:`tests.support.maven.fetched_jars`. Raises NotRunError if a jar cannot be fetched."""
    try:
        return maven.fetched_jars(*coordinates, is_transitive=is_transitive)
    except maven.MissingJarsError as error:
        raise NotRunError(str(error)) from error
