"""Defines the statements about connections and secrets."""

from __future__ import annotations

from dataclasses import dataclass, field

from rw_sql.syntax.statements.common import Name, Option, OptionKey, OptionValue, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConnection(Statement):
    """``CREATE [OR REPLACE] CONNECTION [IF NOT EXISTS] n WITH (…)``."""

    name: Name
    options: tuple[Option, ...]
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConnection(Statement):
    """``DROP CONNECTION [IF EXISTS] n [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionChange:
    """One change in an ALTER CONNECTION: ``verb`` is SET (with options), DROP or RESET (with keys)."""

    verb: str
    options: tuple[Option, ...] = ()
    keys: tuple[OptionKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConnectionOptions(Statement):
    """``ALTER CONNECTION [IF EXISTS] n {SET (…) | DROP (…) | RESET (…)} [, …] [WITH (VALIDATE = bool)]
    [REASON 'text']``."""

    name: Name
    changes: tuple[ConnectionChange, ...]
    if_exists: bool = False
    is_validated: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSecret(Statement):
    """``CREATE SECRET [IF NOT EXISTS] n WITH (backend = …) [AS 'content']``.

    ``repr`` omits the content.
    """

    name: Name
    options: tuple[Option, ...] = ()
    content: OptionValue | None = field(default=None, repr=False)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSecret(Statement):
    """``ALTER SECRET n [WITH (new_key = true)] AS 'content'``.

    ``repr`` omits the content.
    """

    name: Name
    content: OptionValue = field(repr=False)
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSecret(Statement):
    """``DROP SECRET [IF EXISTS] n [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Validate(Statement):
    """``VALIDATE {CONNECTION | SOURCE | SINK} n``."""

    kind: str
    name: Name
