"""Checks the result of a look at an upstream or a target before a definition is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import TARGET_UNFIT, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE, SqlError

if TYPE_CHECKING:
    from rw_sql.connectors.base import Upstream
    from rw_sql.connectors.sink import SinkLook
    from rw_sql.errors import Span


def require_upstream(upstream: Upstream, name: str, span: Span, *, kind: str = "source") -> None:
    """Raises SqlError if the upstream does not answer or lacks what the object (of ``kind``) names."""
    if upstream.error is not None:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f'the upstream of {kind} "{name}" does not answer: {upstream.error}',
            span=span,
            hint="check its address; WITH (VALIDATE = false), where the statement takes it, stores it anyway",
        )
    if upstream.missing:
        topics = ", ".join(f'"{topic}"' for topic in upstream.missing)
        raise SqlError(
            UPSTREAM_MISSING,
            f'the upstream of {kind} "{name}" has no topic {topics}',
            span=span,
            hint="create the topic first, or name another one",
        )


def require_target(target: SinkLook, name: str, span: Span, *, is_stored: bool = False) -> None:
    """Raises SqlError if the target does not answer, does not exist, or cannot store the sink's rows.

    With ``is_stored`` a target that may refuse rows, by their types, is accepted: an existing sink continues to run.
    """
    if target.error is not None:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f'the target of sink "{name}" does not answer: {target.error}',
            span=span,
            hint="check its address, its user and its rights",
        )
    if target.missing is not None:
        raise SqlError(
            UPSTREAM_MISSING, f'the target of sink "{name}" has no {target.missing}', span=span, hint=target.hint
        )
    if target.misfit is not None:
        raise SqlError(TARGET_UNFIT, f'sink "{name}" cannot be written: {target.misfit}', span=span, hint=target.hint)
    if target.doubt is not None and not is_stored:
        raise SqlError(TARGET_UNFIT, f'sink "{name}" cannot be written: {target.doubt}', span=span, hint=target.hint)
