"""Creates the requests to confirm unsafe statements, and checks the system parameter that enables unsafe statements."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import CONFIRMATION_NEEDED, UNSAFE_OPERATIONS_OFF, SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.result.allow import predicted_words
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import CreateSource, CreateTable, InjectCheckpointOffsets, UnsafeBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.result.plan import Plan, Preview, SplitPreview

SWITCH = "enable_unsafe_ops"
_TOKEN_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request to confirm an unsafe statement. ``token`` is the token that confirms it.

    ``unallowed`` are the words that the statement's ALLOW lacks for the predicted effects. A confirmation in advance
    (``--yes``, ``unsafe_confirmation``), which the user gives before seeing the preview, does not cover these effects.
    ``assertion`` is a fact that the user also asserts by confirming, for example that a job is stopped. A confirmation
    in advance does not cover this fact either. ``is_final`` is False if statements that run before this statement will
    change the token. ``covering`` is a second token that also confirms the request: the token that the same plan would
    have if its preview showed records that are left unread.
    """

    statement: str
    preview: str
    token: str
    unallowed: tuple[str, ...] = ()
    assertion: str = ""
    covering: str = ""
    is_final: bool = True

    @property
    def tokens(self) -> frozenset[str]:
        """The tokens that confirm the request."""
        return frozenset(filter(None, (self.token, self.covering)))

    @property
    def takes_yes_beforehand(self) -> bool:
        """True if a confirmation in advance, which the user gives before seeing the preview, is valid for this
        request."""
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


def token_of(snapshot: Snapshot, plan: Plan, *, leaves_unread: bool | None = None) -> str:
    """Returns the token: a digest of the statement, the plan's fingerprint (such as new positions), the effects on
    splits, and the epochs of the affected objects, of their readers and pauses, and of the objects that they use.

    The token is valid only for this plan, and only until one of these values changes. ``leaves_unread`` is True if the
    token is for a preview in which a source leaves records unread in splits that it no longer reads. If
    ``leaves_unread`` is None, the plan's preview determines the value.
    """
    is_leaving = _leaves_unread(plan) if leaves_unread is None else leaves_unread
    parts = [render(plan.statement), plan.fingerprint, *_effects(snapshot, plan), *(("unread",) if is_leaving else ())]
    for id_ in plan.affected:
        parts.append(f"{id_}@{snapshot.object_epoch(id_)}/{snapshot.fragment_epoch(f'ingest-{id_}')}")
        record = snapshot.get(id_)
        uses = record.uses if isinstance(record, SourceRecord) else ()
        held = [hold.id for hold in pauses_of(snapshot, id_)]
        if isinstance(record, SourceRecord) and not record.is_shared:
            parts += [f"{r.fragment}@{snapshot.fragment_epoch(r.fragment)}" for r in readers_of(snapshot, record)]
        parts += [f"{other}@{snapshot.object_epoch(other)}" for other in (*uses, *held)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_TOKEN_DIGITS]


def _effects(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Returns the effect on each split according to the preview. Numbers that change whenever records are written to a
    topic or read from a topic are left out.

    The epochs alone are not sufficient, because an upstream can change without a new epoch: a topic may be deleted and
    created again, or retention may remove records. The plan would then have another effect than the user has confirmed.
    """
    sources = [record for record in map(snapshot.get, plan.affected) if isinstance(record, SourceRecord)]
    is_still = bool(sources) and all(pauses_of(snapshot, source.id) for source in sources)
    parts = () if plan.preview is None else _parts(plan.preview)
    return [f"{part.title}: {_effect(split, is_still=is_still)}" for part in parts for split in part.splits]


def _leaves_unread(plan: Plan) -> bool:
    """True if the preview shows records that will never be read, in a split that the source no longer reads."""
    parts = () if plan.preview is None else _parts(plan.preview)
    return any(split.new is None and split.gaps for part in parts for split in part.splits)


def _parts(preview: Preview) -> Iterator[Preview]:
    """Yields a preview, its parts, the parts of these parts, and so on."""
    yield preview
    for part in preview.parts:
        yield from _parts(part)


def _effect(split: SplitPreview, *, is_still: bool) -> str:
    """Returns the effect on one split, as a part of the token. ``is_still`` is True if every affected source is paused.
    No reader then advances the position in the split, and most numbers of the move do not change.

    Two kinds of numbers still change, and are therefore left out. The first kind is the number of unread records that
    remain in a topic that is no longer read. The second kind is the new position and the gap of a split that the
    statement moves to the upstream's end.
    """
    if split.verdict.startswith("UNKNOWN"):
        return f"{split.reader}/{split.split} {split.verdict}"
    if split.new is None:
        lost = "GAP" if split.gaps and is_still else ""
        return f"{split.reader}/{split.split} left {lost}"
    words = " ".join(predicted_words((split,)))
    is_fixed = is_still and words and split.new != split.end
    return f"{split.reader}/{split.split} {words} {f'{split.old}>{split.new}' if is_fixed else ''}"


def question_of(snapshot: Snapshot, plan: Plan) -> Question:
    """The request to confirm an unsafe plan."""
    preview = render_preview(plan.preview) if plan.preview else ""
    return Question(
        statement=render(plan.statement),
        preview=preview,
        token=token_of(snapshot, plan),
        # The preview stops showing unread records each time a running reader reaches the end of a topic, and shows
        # unread records again when new records arrive in the topic. Without this second token, the confirmation of a
        # gap would often be invalid.
        covering=token_of(snapshot, plan, leaves_unread=True),
        unallowed=plan.unallowed,
        assertion=plan.assertion,
    )


class UnconfirmedError(SqlError):
    """The error for a missing confirmation. Its detail is the preview, and its hint states how the user can confirm the
    statement.

    ``question`` is the request that was not confirmed.
    """

    def __init__(self, question: Question, message: str, *, span: Span, hint: str) -> None:
        super().__init__(CONFIRMATION_NEEDED, message, span=span, detail=question.preview, hint=hint)
        self.question = question


def refusal(question: Question, plan: Plan, *, was_asked: bool) -> UnconfirmedError:
    """The error for a missing confirmation. Its hint is for sessions and scripts."""
    message = (
        "the operation was not confirmed"
        if was_asked
        else "this operation needs a confirmation, but this session is not interactive"
    )
    ended = ", and the block has ended" if isinstance(plan.statement, UnsafeBlock) else ""
    hint = (
        f"nothing was changed{ended}; to run the operation with exactly this preview, type CONFIRM '{question.token}' "
        f"in this session, or rw-sql run --confirm {question.token} in a script"
    )
    if question.unallowed:
        hint += f"; a confirmation in advance, such as --yes, needs {_allowing(plan)}"
    if question.assertion:
        said = (
            ", unless the statement has WITH (ASSUME_STOPPED = true)"
            if isinstance(plan.statement, InjectCheckpointOffsets)
            else ""
        )
        hint += f"; a confirmation in advance does not assert that {question.assertion}{said}"
    return UnconfirmedError(question, message, span=plan.statement.span, hint=hint)


def _allowing(plan: Plan) -> str:
    """Returns a text that names the ALLOW clause that a plan lacks and the statement to which the user must add it."""
    allow = f"ALLOW {', '.join(plan.unallowed)}"
    if plan.unallowed_sources:
        return f"{allow} in a RESET, INJECT or UNSAFE SET of the block on source {', '.join(plan.unallowed_sources)}"
    if isinstance(plan.statement, CreateSource | CreateTable):  # This is CREATE OR REPLACE, which has no ALLOW.
        kind = "SOURCE" if isinstance(plan.statement, CreateSource) else "TABLE"
        name = sql_name(plan.statement.name.key)
        return f"ALTER {kind} {name} UNSAFE SET (…) {allow} in place of CREATE OR REPLACE"
    return f"{allow} in the statement"


def hint_beforehand(question: Question, *, plan_file: str | None = None) -> str:
    """Returns the hint for a command that runs several statements. The command was refused before the first statement
    ran, because one of the statements needs a confirmation and nobody can be prompted for it.

    The hint contains no token, because the earlier statements change the token.
    """
    if not question.unallowed:
        return "nothing was changed; add --yes to the same command"
    allow = f"--allow {','.join(word.lower() for word in question.unallowed)}"
    if plan_file is not None:
        return (
            "nothing was changed; to accept the predicted effects, make the plan again: rw-sql diff FOLDER "
            f"{allow} --file {plan_file}; and apply it with --yes"
        )
    return f"nothing was changed; to accept the predicted effects, add --yes {allow} to the same command"


def hint_for_a_command(question: Question, *, plan_file: str | None = None, is_outdated: bool = False) -> str:
    """Returns the hint for a command such as ``rw-sql source``. Such a command builds the statement itself, so the user
    has no session in which to type CONFIRM, and no statement text to change.

    ``plan_file`` is the saved plan that the command applies. The command's options cannot change the statements of a
    saved plan. ``is_outdated`` is True if some statements of the plan have already run; the plan can then not be
    applied again.
    """
    allow = f"--allow {','.join(word.lower() for word in question.unallowed)}"
    if plan_file is not None and is_outdated:
        either = f"; --yes needs a plan that is made with {allow}" if question.unallowed else ""
        return (
            "this statement changed nothing; to run it with exactly this preview, make the plan again: rw-sql diff "
            f"FOLDER --file {plan_file}; and apply it with --confirm {question.token}{either}"
        )
    hint = (
        "this statement changed nothing; to run it with exactly this preview, add --confirm "
        f"{question.token} to the same command"
    )
    if not question.unallowed:
        return hint
    if plan_file is not None:
        return f"{hint}; --yes needs a plan that is made with it: rw-sql diff FOLDER {allow} --file {plan_file}"
    return f"{hint}; --yes needs {allow}"
