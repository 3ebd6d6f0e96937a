"""Represents a catalog as one JSON file. With this file, ``rw-sql check`` can check a script on a machine that cannot
reach the warehouse.

The file contains definitions, assigned splits, and the positions that statements have set. The file does not contain
the values of secrets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.metastore.codec import record_from_data
from rw_sql.metastore.records import AssignSplits, PutObject, PutSplitStates, SecretRecord
from rw_sql.metastore.snapshot import Snapshot, effect_of, fold

if TYPE_CHECKING:
    from rw_sql.metastore.records import Change, ObjectRecord

_FORMAT = "rw_sql catalog"
_VERSION = 1


class _File(msgspec.Struct, kw_only=True):
    format: str = _FORMAT
    version: int = _VERSION
    epoch: int
    objects: list[Any]
    splits: dict[str, list[str]]
    states: dict[str, dict[str, str]]


def catalog_to_json(snapshot: Snapshot) -> str:
    """Returns the text of the file. The text is indented, and each export writes the objects in the same order."""
    file = _File(
        epoch=snapshot.epoch,
        objects=[_public(snapshot.records[id_]) for id_ in sorted(snapshot.records)],
        splits={fragment: sorted(splits) for fragment, splits in sorted(snapshot.assigned.items())},
        states={
            fragment: {split: states[split].state for split in sorted(states)}
            for fragment, states in sorted(snapshot.stored.items())
        },
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1).decode() + "\n"


def _public(record: ObjectRecord) -> ObjectRecord:
    return replace(record, sealed=None) if isinstance(record, SecretRecord) else record


def catalog_from_json(text: str, name: str) -> Snapshot:
    """Parses the text that :func:`catalog_to_json` wrote. The text may begin with a byte-order mark. ``name`` is the
    file's name in messages.

    Raises SqlError INVALID_OPTION for a file that is not an exported catalog or has another version of the format.
    Raises METASTORE_IS_NEWER for an object whose kind or field is unknown to this version of rw_sql.
    """
    try:
        body = msgspec.json.decode(text.removeprefix("\ufeff"))
        if not isinstance(body, dict) or body.get("format") != _FORMAT:
            raise ValueError(f'it has no field "format" with the text {_FORMAT!r}')
        if body.get("version") != _VERSION:
            raise ValueError(f"its version is {body.get('version')}, and this rw_sql reads version {_VERSION}")
        file = msgspec.convert(body, _File)
        changes: list[Change] = [PutObject(record=record_from_data(data)) for data in file.objects]
        changes += [AssignSplits(fragment=fragment, splits=tuple(s)) for fragment, s in file.splits.items()]
        changes += [
            PutSplitStates(fragment=fragment, states=states, log_version=0) for fragment, states in file.states.items()
        ]
        return fold(Snapshot(), effect_of(Snapshot(), file.epoch, "", changes))
    except ValueError as error:
        raise SqlError(
            INVALID_OPTION, f"{name} is not a catalog: {error}", hint="rw-sql export-catalog -w WAREHOUSE writes one"
        ) from error
