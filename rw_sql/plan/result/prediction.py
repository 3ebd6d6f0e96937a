"""The predicted effect of an operation, and the positions it was planned with, as the JSON stored with the
operation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.metastore.records import SourceRecord
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.plan.result.plan import Preview


_SHARED = "ingest-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSplit:
    """One split of a preview: the next record before and after, the verdict as in the preview, and its counts.

    If not ``is_exact``, the counts are upper limits.
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
        """True if the offsets before and after are not comparable: another topic, cluster or incarnation."""
        return self.verdict.startswith("UNKNOWN")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePrediction:
    """The effect of one operation on one reader of a source.

    ``stood`` are the positions of the splits when the operation was planned, as the connector's JSON, with the source's
    log at ``log_version``.
    """

    log_version: int
    stood: Mapping[str, str] = field(default_factory=dict)
    splits: tuple[PredictedSplit, ...] = ()


def predicted(source: SourceRecord, stands: Positions, preview: Preview) -> SourcePrediction:
    """The prediction in the preview of one source."""
    kind = connector(source.connector)
    return SourcePrediction(
        log_version=stands.log_version,
        stood={split: kind.encode_state(state) for split, state in stands.states.items()},
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
    )


def prediction_to_json(by_fragment: Mapping[str, SourcePrediction]) -> str:
    """The text of :attr:`Operation.prediction`. Shared readers are keyed by their source's id."""
    body = {
        fragment.removeprefix(_SHARED): {
            "log_version": found.log_version,
            "stood": dict(found.stood),
            "splits": [_split_to_list(split) for split in found.splits],
        }
        for fragment, found in by_fragment.items()
    }
    return json.dumps({"sources": body}, separators=(",", ":"), ensure_ascii=False)


def _split_to_list(split: PredictedSplit) -> list[object]:
    return [split.split, split.old, split.new, split.verdict, split.duplicates, split.gaps, split.is_exact]


def join_predictions(texts: Iterable[str | None]) -> str | None:
    """Merges several texts with different fragments; None if there are none."""
    found: dict[str, object] = {}
    for text in texts:
        found |= json.loads(text)["sources"] if text is not None else {}
    return json.dumps({"sources": found}, separators=(",", ":"), ensure_ascii=False) if found else None


def prediction_from_json(text: str | None) -> dict[str, SourcePrediction]:
    """The predictions by fragment; empty for an operation without one."""
    if text is None:
        return {}
    return {
        _SHARED + key if key.isdigit() else key: SourcePrediction(
            log_version=body["log_version"],
            stood=body["stood"],
            splits=tuple(
                PredictedSplit(
                    split=split, old=old, new=new, verdict=verdict, duplicates=duplicates, gaps=gaps, is_exact=is_exact
                )
                for split, old, new, verdict, duplicates, gaps, is_exact in body["splits"]
            ),
        )
        for key, body in json.loads(text)["sources"].items()
    }
