"""Actions for the statements about foreign checkpoints, which belong to jobs that rw_sql does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.syntax.parsing.actions.parts import read_switches
from rw_sql.syntax.statements.common import NOWHERE, TextValue
from rw_sql.syntax.statements.show import ShowCheckpoint
from rw_sql.syntax.statements.source import InjectCheckpointOffsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.errors import Span
    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.statements.common import Option
    from rw_sql.syntax.statements.source import InjectTarget, SplitId

_BROKERS = ("properties.", "connection")


def inject_checkpoint_offsets(
    path: Token,
    target: InjectTarget,
    splits: tuple[SplitId, ...],
    allow: tuple[str, ...],
    written: tuple[Option, ...],
    reason: str | None,
) -> InjectCheckpointOffsets:
    options, rest = _brokers(written)
    table, rest = _text("table", rest)
    watch, rest = _text("watch", rest)
    read = read_switches(
        rest, {"convention": ("next", "last_seen"), "exactly": False, "assume_stopped": False, "validate": True}
    )
    return InjectCheckpointOffsets(
        path=path.value,
        path_span=path.span,
        target=target,
        splits=splits,
        allow=allow,
        options=options,
        tables=_listed(table),
        convention=read["convention"],
        is_exactly=read["exactly"],
        is_assumed_stopped=read["assume_stopped"],
        is_validated=read["validate"],
        watch=watch.text if watch is not None else None,
        watch_span=_span(watch),
        table_span=_span(table),
        reason=reason,
    )


def show_checkpoint(path: Token, written: tuple[Option, ...]) -> ShowCheckpoint:
    options, rest = _brokers(written)
    table, rest = _text("table", rest)
    read_switches(rest, {})
    return ShowCheckpoint(
        path=path.value, path_span=path.span, options=options, tables=_listed(table), table_span=_span(table)
    )


def _brokers(written: tuple[Option, ...]) -> tuple[tuple[Option, ...], tuple[Option, ...]]:
    options = tuple(option for option in written if option.key.startswith(_BROKERS))
    return options, tuple(option for option in written if option not in options)


def _text(key: str, written: tuple[Option, ...]) -> tuple[TextValue | None, tuple[Option, ...]]:
    """The value of an option (None if the option is missing), and the other options."""
    for option in written:
        if option.key == key:
            if not isinstance(option.value, TextValue):
                raise SqlError(
                    INVALID_OPTION,
                    f"{key.upper()} must be a string in quotes",
                    span=option.value.span,
                    hint=f"{key.upper()} = '…'",
                )
            return option.value, tuple(other for other in written if other is not option)
    return None, written


def _span(value: TextValue | None) -> Span:
    return value.span if value is not None else NOWHERE


def _listed(table: TextValue | None) -> tuple[str, ...]:
    listed = table.text.split(",") if table is not None else ()
    return tuple(part.strip() for part in listed if part.strip())


CHECKPOINT_RULES: dict[str, Callable[..., Any]] = {
    "inject_checkpoint_offsets": inject_checkpoint_offsets,
    "show_checkpoint": show_checkpoint,
}
