"""The confirmation of unsafe statements: checks the system parameter that enables them, and a confirmation of the
exact request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import CONFIRMATION_NEEDED, UNSAFE_OPERATIONS_OFF, SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.result.preview import render_preview
from rw_sql.syntax import render
from rw_sql.syntax.statements import InjectCheckpointOffsets

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.result.plan import Plan

SWITCH = "enable_unsafe_ops"
_TOKEN_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request to confirm an unsafe statement: its preview, and the token that confirms it.

    ``unallowed`` are the words that its ALLOW lacks for the predicted effects. A confirmation given without the
    preview (``--yes``, ``unsafe_confirmation``) does not cover these effects. ``assertion`` is an additional
    statement of fact that the user confirms (such as that a job is stopped). It cannot be confirmed in advance
    either.
    """

    statement: str
    preview: str
    token: str
    unallowed: tuple[str, ...] = ()
    assertion: str = ""

    @property
    def takes_yes_beforehand(self) -> bool:
        """True if a confirmation in advance, without having seen the preview, is valid."""
        return not self.unallowed and not self.assertion


def require_switch(snapshot: Snapshot, span: Span) -> None:
    """Raises SqlError UNSAFE_OPERATIONS_OFF unless ``enable_unsafe_ops`` is on."""
    if snapshot.parameter(SWITCH) != "true":
        raise SqlError(
            UNSAFE_OPERATIONS_OFF,
            "unsafe operations are not enabled in this warehouse",
            span=span,
            hint=f"ALTER SYSTEM SET {SWITCH} = true",
        )


def token_of(snapshot: Snapshot, plan: Plan) -> str:
    """A digest of the statement, its positions, and the epochs of the affected objects, of the objects that they
    use, and of pauses.

    The token is valid only for this plan, and only until one of these changes.
    """
    parts = [render(plan.statement), plan.fingerprint]
    for id_ in plan.affected:
        parts.append(f"{id_}@{snapshot.object_epoch(id_)}/{snapshot.fragment_epoch(f'ingest-{id_}')}")
        record = snapshot.get(id_)
        uses = record.uses if isinstance(record, SourceRecord) else ()
        held = [hold.id for hold in pauses_of(snapshot, id_)]
        if isinstance(record, SourceRecord) and not record.is_shared:
            parts += [f"{r.fragment}@{snapshot.fragment_epoch(r.fragment)}" for r in readers_of(snapshot, record)]
        parts += [f"{other}@{snapshot.object_epoch(other)}" for other in (*uses, *held)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_TOKEN_DIGITS]


def question_of(snapshot: Snapshot, plan: Plan) -> Question:
    """The confirmation request for an unsafe plan."""
    preview = render_preview(plan.preview) if plan.preview else ""
    return Question(
        statement=render(plan.statement),
        preview=preview,
        token=token_of(snapshot, plan),
        unallowed=plan.unallowed,
        assertion=plan.assertion,
    )


def refusal(question: Question, plan: Plan, *, was_asked: bool) -> SqlError:
    """The error for a missing confirmation: it contains the preview and how to confirm."""
    message = (
        "the operation was not confirmed"
        if was_asked
        else "this operation needs a confirmation, but this session is not interactive"
    )
    hint = (
        f"nothing was changed; to run the operation with exactly this preview, type CONFIRM '{question.token}' in this "
        f"session, or rw-sql run --confirm {question.token} in a script"
    )
    if question.unallowed:
        hint += (
            f"; a confirmation in advance, such as --yes, needs ALLOW {', '.join(question.unallowed)} in the statement"
        )
    if question.assertion:
        said = ": WITH (ASSUME_STOPPED = true)" if isinstance(plan.statement, InjectCheckpointOffsets) else ""
        hint += f"; a confirmation in advance does not assert that {question.assertion}{said}"
    return SqlError(CONFIRMATION_NEEDED, message, span=plan.statement.span, detail=question.preview, hint=hint)
