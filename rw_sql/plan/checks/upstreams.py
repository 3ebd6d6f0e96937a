"""Checks the result of a look at an upstream or a target before a definition is committed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.connectors.base import missing_hint
from rw_sql.errors import TARGET_UNFIT, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE, SqlError
from rw_sql.model.definitions import option_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.connectors.base import Upstream
    from rw_sql.connectors.sink import SinkLook
    from rw_sql.errors import Span
    from rw_sql.syntax.statements import Option


_ADDRESS = re.compile(r"(?:^|\.)(?:bootstrap\.servers?|url|hostname|host|endpoint|path|location)$")
"""Properties with the location of an upstream or a target."""

_NO_CONNECTION = re.compile(r"(?P<address>\S+?)/bootstrap: Connect to \S+ failed: (?P<why>.+)")
_NO_HOST = re.compile(r"(?P<address>\S+?)/bootstrap: Failed to resolve '[^']*': (?P<why>.+)")
STORED = "WITH (VALIDATE = false) stores it anyway"
"""Of a hint: the statement has the switch."""


def require_upstream(
    upstream: Upstream,
    name: str,
    span: Span,
    *,
    kind: str = "source",
    options: tuple[Option, ...] = (),
    is_switchable: bool = False,
) -> None:
    """Raises SqlError if the upstream does not respond or lacks something that the object (of ``kind``) names.

    ``options`` are the options in the statement: the error points at the wrong one. ``is_switchable``: the statement
    accepts VALIDATE.
    """
    if upstream.error is not None:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f'the upstream of {kind} "{name}" does not answer: {unreachable(upstream.error)}',
            span=address_place(options) or span,
            hint=address_hint(options, is_switchable=is_switchable),
        )
    if upstream.missing:
        topics = ", ".join(f'"{topic}"' for topic in upstream.missing)
        raise SqlError(
            UPSTREAM_MISSING,
            f'the upstream of {kind} "{name}" has no topic {topics}',
            span=value_place(options, upstream.missing[0]) or span,
            hint=missing_hint(upstream.missing[0], upstream.present),
        )


def unreachable(reason: str) -> str:
    """The reason why an upstream or target does not respond, as part of a sentence."""
    found = _NO_CONNECTION.match(reason) or _NO_HOST.match(reason)
    return f"cannot connect to {found['address']} ({found['why'].lower()})" if found else reason


def address_hint(options: Iterable[Option], *, is_switchable: bool) -> str:
    """The hint for an upstream that does not answer."""
    told = next((option.key for option in options if _ADDRESS.search(option.key)), None)
    look = f"check {told or 'its address'}: does it run there?"
    return f"{look} {STORED}" if is_switchable else look


def address_place(options: Iterable[Option]) -> Span | None:
    """The place of the address among a statement's properties, else of the connection that has it."""
    by_address = [option.value.span for option in options if _ADDRESS.search(option.key)]
    return next(iter([*by_address, *(option.value.span for option in options if option.key == "connection")]), None)


def value_place(options: Iterable[Option], wanted: str) -> Span | None:
    """The place of a property with this value, or with a list that contains it."""
    for option in options:
        if wanted in [item.strip() for item in option_text(option.value).split(",")]:
            return option.value.span
    return None


def require_target(
    target: SinkLook,
    name: str,
    span: Span,
    *,
    is_stored: bool = False,
    options: tuple[Option, ...] = (),
    is_switchable: bool = False,
) -> None:
    """Raises SqlError if the target does not answer, does not exist, or cannot store the sink's rows.

    With ``is_stored`` a target that may refuse rows, by their types, is accepted: an existing sink continues to run.
    """
    if target.error is not None:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f'the target of sink "{name}" does not answer: {unreachable(target.error)}',
            span=address_place(options) or span,
            hint=f"check its address, its user and its rights{f'; {STORED}' if is_switchable else ''}",
        )
    if target.missing is not None:
        raise SqlError(
            UPSTREAM_MISSING,
            f'the target of sink "{name}" has no {target.missing}',
            span=value_place(options, target.named) or span,
            hint=target.hint,
        )
    if target.misfit is not None:
        raise SqlError(TARGET_UNFIT, f'sink "{name}" cannot be written: {target.misfit}', span=span, hint=target.hint)
    if target.doubt is not None and not is_stored:
        raise SqlError(TARGET_UNFIT, f'sink "{name}" cannot be written: {target.doubt}', span=span, hint=target.hint)
