"""The gate before unsafe statements: the stored switch, and a yes for this very request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import CONFIRMATION_NEEDED, UNSAFE_OPERATIONS_OFF, SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.pauses import holds_of
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
    """What an operator is asked before an unsafe statement: its preview, and the token that stands for a yes to it.

    ``unallowed`` are the words that its ALLOW lacks for what the preview predicts: whoever says yes without having seen
    the preview (``--yes``, ``unsafe_confirmation``) has not accepted that, and must say no. ``claim`` is what a yes
    says besides, which cannot be said beforehand either.
    """

    statement: str
    preview: str
    token: str
    unallowed: tuple[str, ...] = ()
    claim: str = ""

    @property
    def takes_yes_beforehand(self) -> bool:
        """Whether a yes counts of somebody who has not seen the preview."""
        return not self.unallowed and not self.claim


def require_switch(snapshot: Snapshot, span: Span) -> None:
    """Raises SqlError UNSAFE_OPERATIONS_OFF unless ``enable_unsafe_ops`` is on."""
    if snapshot.parameter(SWITCH) != "true":
        raise SqlError(
            UNSAFE_OPERATIONS_OFF,
            "unsafe operations are switched off in this warehouse",
            span=span,
            hint=f"ALTER SYSTEM SET {SWITCH} = true",
        )


def token_of(snapshot: Snapshot, plan: Plan) -> str:
    """A digest of the text, of positions, and of the epochs of what it affects, of what that uses and what holds it.

    It fits nothing else, and not later.
    """
    parts = [render(plan.statement), plan.fingerprint]
    for id_ in plan.affected:
        parts.append(f"{id_}@{snapshot.object_epoch(id_)}/{snapshot.fragment_epoch(f'ingest-{id_}')}")
        record = snapshot.get(id_)
        uses = record.uses if isinstance(record, SourceRecord) else ()
        held = [hold.id for hold in holds_of(snapshot, id_)]
        if isinstance(record, SourceRecord) and not record.is_shared:
            parts += [f"{r.fragment}@{snapshot.fragment_epoch(r.fragment)}" for r in readers_of(snapshot, record)]
        parts += [f"{other}@{snapshot.object_epoch(other)}" for other in (*uses, *held)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_TOKEN_DIGITS]


def question_of(snapshot: Snapshot, plan: Plan) -> Question:
    """The question for an unsafe plan."""
    preview = render_preview(plan.preview) if plan.preview else ""
    return Question(
        statement=render(plan.statement),
        preview=preview,
        token=token_of(snapshot, plan),
        unallowed=plan.unallowed,
        claim=plan.claim,
    )


def refusal(question: Question, plan: Plan, *, was_asked: bool) -> SqlError:
    """The error where nobody said yes: it carries the preview and how to confirm."""
    message = (
        "the operation was not confirmed"
        if was_asked
        else "this operation needs a confirmation and nobody can be asked"
    )
    hint = (
        f"nothing was changed; CONFIRM '{question.token}' in this session does what is shown above, "
        f"rw-sql run --confirm {question.token} in a script"
    )
    if question.unallowed:
        hint += f"; a yes beforehand, such as --yes, needs ALLOW {', '.join(question.unallowed)} in the statement"
    if question.claim:
        said = ": WITH (ASSUME_STOPPED = true)" if isinstance(plan.statement, InjectCheckpointOffsets) else ""
        hint += f"; a yes beforehand does not say that {question.claim}{said}"
    return SqlError(CONFIRMATION_NEEDED, message, span=plan.statement.span, detail=question.preview, hint=hint)
