"""A catalog as one JSON file: what a script is checked against where its warehouse cannot be reached.

Definitions, assigned splits and the positions that statements set are in it; values of secrets are not.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.metastore.records import AssignSplits, PutObject, PutSplitStates, SecretRecord
from rw_sql.metastore.snapshot import Snapshot, effect_of, fold

if TYPE_CHECKING:
    from rw_sql.metastore.records import Change, ObjectRecord

_FORMAT = "rw_sql catalog"
_VERSION = 1


def catalog_to_json(snapshot: Snapshot) -> str:
    """The file's text, readable and in an order that does not change from one export to the next."""
    body: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "epoch": snapshot.epoch,
        "objects": [json.loads(record_to_json(_public(snapshot.records[id_]))) for id_ in sorted(snapshot.records)],
        "splits": {fragment: sorted(splits) for fragment, splits in sorted(snapshot.assigned.items())},
        "states": {
            fragment: {split: states[split].state for split in sorted(states)}
            for fragment, states in sorted(snapshot.stored.items())
        },
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _public(record: ObjectRecord) -> ObjectRecord:
    return replace(record, sealed=None) if isinstance(record, SecretRecord) else record


def catalog_from_json(text: str, name: str) -> Snapshot:
    """The catalog of a file's text; ``name`` is how a message calls the file.

    Raises SqlError INVALID_OPTION where it is no such file, and METASTORE_IS_NEWER where a newer rw_sql wrote it.
    """
    try:
        body = json.loads(text)
        if not isinstance(body, dict) or body.get("format") != _FORMAT:
            raise ValueError("it does not say that it is one")
        if body.get("version") != _VERSION:
            raise ValueError(f"its version is {body.get('version')}, this rw_sql reads version {_VERSION}")
        changes: list[Change] = [PutObject(record=record_from_json(json.dumps(data))) for data in body["objects"]]
        changes += [AssignSplits(fragment=fragment, splits=tuple(s)) for fragment, s in body["splits"].items()]
        changes += [
            PutSplitStates(fragment=fragment, states=dict(states), log_version=0)
            for fragment, states in body["states"].items()
        ]
        epoch = int(body["epoch"])
        return fold(Snapshot(), effect_of(Snapshot(), epoch, "", changes))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise SqlError(
            INVALID_OPTION, f"{name} is no catalog: {what}", hint="rw-sql export-catalog -w WAREHOUSE writes one"
        ) from error
