"""Converts the arguments of each ``rw-sql source`` command to a statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, connector_names
from rw_sql.errors import INVALID_OPTION, INVALID_PROPERTY, SYNTAX_ERROR, SqlError, either
from rw_sql.syntax.statements import (
    AlterSourceUnsafeSet,
    InjectBack,
    InjectFromCheckpoint,
    InjectFromFile,
    InjectFromGroup,
    InjectFromSource,
    InjectShift,
    InjectSourceOffsets,
    InjectTo,
    InjectToOffset,
    InjectToTimestamp,
    InjectValues,
    Name,
    NullValue,
    NumberValue,
    Option,
    OptionKey,
    SecretValue,
    SplitEntry,
    SplitId,
    TextValue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.statements import InjectTarget

ROWS = ("GAPS", "DUPLICATES")
OFFSETS = (*ROWS, "CLAMP")


def source_name(text: str) -> Name:
    """The name of a source as given on the command line, with its upper and lower case, and with its schema, if any."""
    return Name.of(text)


def pairs(words: Sequence[str], flag: str) -> list[tuple[str, str]]:
    """Splits ``key=value`` words at the first ``=``. Raises SqlError. The error's message does not contain the
    value."""
    found = []
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key.strip():
            raise SqlError(SYNTAX_ERROR, f"{flag} takes key=value", hint=f"{flag} topic=orders_v2")
        found.append((key.strip(), value))
    return found


def alter_statement(
    name: str,
    settings: Sequence[str],
    secrets: Sequence[str],
    unset: Sequence[str],
    *,
    allow: Sequence[str],
    is_validated: bool,
    reason: str | None,
) -> AlterSourceUnsafeSet:
    """The statement ``ALTER SOURCE … UNSAFE SET``.

    A literal value for a secret property is refused, because the shell's history would store the value.
    """
    options = []
    for key, value in pairs(settings, "--set"):
        if any(_is_secret(kind, key) for kind in connector_names()):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{key}" accepts only a secret, not a literal value',
                hint=f"CREATE SECRET s …; then --set-secret {key}=s",
            )
        options.append(Option(key=key, value=TextValue(text=value)))
    options += [
        Option(key=key, value=SecretValue(secret=source_name(secret))) for key, secret in pairs(secrets, "--set-secret")
    ]
    if not options and not unset:
        raise SqlError(SYNTAX_ERROR, "there is nothing to alter", hint="give --set key=value, --set-secret or --unset")
    return AlterSourceUnsafeSet(
        name=source_name(name),
        set_options=tuple(options),
        unset_options=tuple(OptionKey(key=key) for key in unset),
        allow=allowed_words(allow, ROWS),
        is_validated=is_validated,
        reason=reason,
    )


def _is_secret(kind: str, key: str) -> bool:
    known = connector(kind).spec.option(key)
    return known is not None and known.is_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWords:
    """The options that set the target of INJECT. Exactly one of these options must be given."""

    settings: Sequence[str] = ()
    file: str | None = None
    groups: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    other: str | None = None
    bounds: Sequence[str] = ()
    offset: int | None = None
    timestamp: str | None = None
    shifts: Sequence[int] = ()
    back_by: str | None = None

    def target(self) -> InjectTarget:
        """The statement's target. Raises SqlError if the command line has no target or several targets."""
        given: list[InjectTarget] = []
        if self.settings:
            given.append(InjectValues(entries=tuple(_entry(*pair) for pair in pairs(self.settings, "--set"))))
        if self.file is not None:
            given.append(InjectFromFile(path=self.file))
        given += [InjectFromGroup(group=group) for group in self.groups]
        given += [InjectFromCheckpoint(path=path) for path in self.checkpoints]
        if self.other is not None:
            given.append(InjectFromSource(source=source_name(self.other)))
        given += map(_bound, self.bounds)
        if self.offset is not None:
            given.append(InjectToOffset(offset=self.offset))
        if self.timestamp is not None:
            given.append(InjectToTimestamp(timestamp=self.timestamp))
        given += [InjectShift(records=records) for records in self.shifts]
        if self.back_by is not None:
            given.append(InjectBack(interval=self.back_by))
        if len(given) != 1:
            raise SqlError(
                SYNTAX_ERROR,
                "the offsets must come from exactly one place" if given else "no offsets are given",
                hint="one of --set SPLIT=N, --file, --from-group, --from-checkpoint, --from-source, --to-earliest, "
                "--to-latest, --to-offset, --to-timestamp, --shift-by, --back-by",
            )
        return given[0]


def _bound(where: str) -> InjectTo:
    if where.lower() not in ("earliest", "latest"):
        raise SqlError(INVALID_OPTION, f"--to must be earliest or latest, but is {where!r}", hint="--to earliest")
    return InjectTo(where=where.lower())


def _entry(split: str, offset: str) -> SplitEntry:
    if offset.lower() == "null":
        return SplitEntry(split=SplitId(id=split), value=NullValue())
    is_number = offset.isascii() and offset.isdecimal()
    return SplitEntry(split=SplitId(id=split), value=NumberValue(text=offset) if is_number else TextValue(text=offset))


def inject_statement(
    name: str,
    words: TargetWords,
    splits: Sequence[str],
    allow: Sequence[str],
    *,
    convention: str,
    is_validated: bool,
    reason: str | None,
) -> InjectSourceOffsets:
    """The statement ``INJECT SOURCE OFFSETS``."""
    if convention not in ("next", "last_seen"):
        raise SqlError(
            INVALID_OPTION, f"--convention must be next or last_seen, but is {convention!r}", hint="omit --convention"
        )
    return InjectSourceOffsets(
        name=source_name(name),
        target=words.target(),
        splits=split_ids(splits),
        allow=allowed_words(allow, OFFSETS),
        convention=convention,
        is_validated=is_validated,
        reason=reason,
    )


def allowed_words(words: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The words of ALLOW. Raises SqlError for a word that the statement does not accept."""
    allowed = tuple(dict.fromkeys(word.upper() for word in words))
    if strange := [word for word in allowed if word not in known]:
        listed = either([word.lower() for word in known])
        message = f"--allow must be {listed}, but is {strange[0].lower()!r}"
        raise SqlError(INVALID_OPTION, message, hint="--allow duplicates")
    return allowed


def split_ids(splits: Sequence[str]) -> tuple[SplitId, ...]:
    """The splits of the clause FOR SPLITS."""
    return tuple(SplitId(id=split) for split in splits)
