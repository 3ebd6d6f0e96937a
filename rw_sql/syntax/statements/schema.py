"""Defines the statements about schemas: CREATE, DROP and USE."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.syntax.statements.common import Name, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchema(Statement):
    """``CREATE SCHEMA [IF NOT EXISTS] s``."""

    name: Name
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSchema(Statement):
    """``DROP SCHEMA [IF EXISTS] s [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSchema(Statement):
    """``USE s``: the same as ``SET search_path = s``."""

    name: Name
