"""Reads the environments of a folder with SQL files. An environment is a file with the values of the folder's
``${variables}``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.text_input import read_text
from rw_sql.errors import FILE_UNREADABLE, INVALID_OPTION, SqlError, first_names, near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def environment_of_folder(folder: str, env: str | None) -> dict[str, str]:
    """Returns the variables of the environment ``env`` for a folder. The variables come from the folder itself or, if
    the environment's file is not there, from the nearest parent folder with this file.

    The result is empty if ``env`` is None. Raises SqlError if no folder has the environment's file.
    """
    return _nearest(Path(folder), env, f'neither folder "{folder}" nor a folder above has a file')


def environment_above(file: str, env: str | None) -> dict[str, str]:
    """The variables of an environment for a file.

    The variables come from the file's own folder or, if the environment's file is not there, from the nearest parent
    folder with the environment's file.

    Raises SqlError if no folder has the environment's file.
    """
    folder = Path(file).parent if file != "-" else Path()
    return _nearest(folder, env, f'no folder of "{file}" has a file')


def _nearest(folder: Path, env: str | None, missing: str) -> dict[str, str]:
    from rw_sql.plan.deploy.folder import read_variables
    from rw_sql.syntax.variables.references import ENVIRONMENT, require_fit

    if env is None:
        return {}
    require_fit(ENVIRONMENT, env)
    above = [folder, *(folder / Path(*[".."] * up) for up in range(1, len(folder.resolve().parts)))]
    for each in above:
        path = each / f"{env}.env"
        if path.is_file():
            return {ENVIRONMENT: env, **read_variables(read_text(str(path)), str(path))}
    raise SqlError(FILE_UNREADABLE, f"{missing} {env}.env", hint=_other_environments(env, above))


def _other_environments(env: str, folders: Sequence[Path]) -> str:
    """Returns the hint for an environment that has no file. The hint concerns the nearest folder that has environments:
    it suggests the environment with a similar name or, if there is none, lists all environments of this folder."""
    for folder in folders:
        with suppress(OSError):
            found = sorted(path.stem for path in folder.glob("*.env") if path.is_file())
            if near := near_names(env, found, most=1):
                return f"did you mean --env {near[0]}?"
            if found:
                shown = os.path.normpath(folder)
                return f'the environments of "{shown}" are {first_names(found, 10)}; a file {env}.env defines another'
    return "an environment is a file of lines NAME=value beside the SQL files, or in a folder above"


def environments_of(env: str | None) -> Callable[[str], dict[str, str]] | None:
    """Returns a function that maps a file to the variables of the environment ``env`` (see :func:`environment_above`).

    Returns None if ``env`` is None, because in this case ``${name}`` is passed to Spark unchanged.
    """
    return None if env is None else lambda file: environment_above(file, env)


def given_variables(texts: Sequence[str]) -> dict[str, str]:
    """The variables that ``--var NAME=VALUE`` sets. Their values replace ``${NAME}``. Raises SqlError."""
    from rw_sql.syntax.variables.references import require_fit

    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SqlError(INVALID_OPTION, f'--var takes NAME=VALUE, found: "{text}"', hint="--var topic=orders")
        require_fit(name, value)
        found[name] = value
    return found
