"""Prepares the messages of databases for use in rw_sql's error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def without_password(message: object, options: Mapping[str, str]) -> str:
    """A message of a database or its client, as a single line in which ``[secret]`` replaces the value of the option
    ``password``."""
    line = " ".join(str(message).split())
    password = options.get("password")
    return line.replace(password, "[secret]") if password else line
