"""Converts an operation's prediction to and from the JSON that is stored with the operation. The prediction also
contains the positions at planning time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from rw_sql.connectors.registry import connector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import SourceRecord
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.plan.result.plan import Preview


_SHARED = "ingest-"


class PredictedSplit(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """One split of a preview. The fields are the offset of the next record to read before the operation, the offset of
    the next record to read after the operation, the verdict as in the preview, and the verdict's counts.

    If ``is_exact`` is False, the counts are upper limits. A PredictedSplit is stored as the list of its values, in the
    order of the fields.
    """

    split: str
    old: int | None
    new: int | None
    verdict: str
    duplicates: int = 0
    gaps: int = 0
    is_exact: bool = True

    @property
    def is_unknown(self) -> bool:
        """True if the old and the new offset cannot be compared, because they are offsets in different topics, clusters
        or incarnations."""
        return self.verdict.startswith("UNKNOWN")


class SourcePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one operation on one reader of a source.

    ``stood`` are the positions that the splits had when the operation was planned, in the connector's JSON form.
    ``log_version`` is the version of the source's log at that time. If a verdict shows bytes in place of the counts of
    offsets, ``sizes`` maps the split to the numbers of repeated and skipped bytes.
    """

    log_version: int
    stood: Mapping[str, str] = {}
    splits: tuple[PredictedSplit, ...] = ()
    sizes: Mapping[str, tuple[int, int]] | msgspec.UnsetType = msgspec.UNSET


def predicted(source: SourceRecord, positions: Positions, preview: Preview) -> SourcePrediction:
    """Creates the prediction for one source from the source's preview and the source's positions at planning time."""
    kind = connector(source.connector)
    sizes = {split.split: split.sizes for split in preview.splits if split.sizes is not None}
    return SourcePrediction(
        log_version=positions.log_version,
        stood={split: kind.encode_state(state) for split, state in positions.states.items()},
        splits=tuple(
            PredictedSplit(
                split=split.split,
                old=split.old,
                new=split.new,
                verdict=split.verdict,
                duplicates=split.duplicates,
                gaps=split.gaps,
                is_exact=split.is_exact,
            )
            for split in preview.splits
        ),
        sizes=sizes or msgspec.UNSET,
    )


class _Stored(msgspec.Struct):
    """The stored JSON. The key of a shared reader is the id of its source, and the key of a direct reader is its
    fragment."""

    sources: dict[str, SourcePrediction]


def prediction_to_json(by_fragment: Mapping[str, SourcePrediction]) -> str:
    """Converts the predictions to the JSON of :attr:`Operation.prediction`."""
    stored = _Stored({fragment.removeprefix(_SHARED): found for fragment, found in by_fragment.items()})
    return msgspec.json.encode(stored).decode()


def join_predictions(texts: Iterable[str | None]) -> str | None:
    """Merges the predictions in ``texts``, which are for different fragments. Returns None if ``texts`` contains no
    prediction."""
    found: dict[str, SourcePrediction] = {}
    for text in texts:
        found |= prediction_from_json(text)
    return prediction_to_json(found) if found else None


def prediction_from_json(text: str | None) -> dict[str, SourcePrediction]:
    """Returns the predictions by fragment. The result is empty for an operation without a prediction."""
    if text is None:
        return {}
    stored = msgspec.json.decode(text, type=_Stored)
    return {_SHARED + key if key.isdecimal() else key: found for key, found in stored.sources.items()}
