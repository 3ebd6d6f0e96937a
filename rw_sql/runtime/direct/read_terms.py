"""Reads the terms of a direct reader's positions from the commits of its view (see
:mod:`rw_sql.runtime.jobs.log_terms`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.runtime.delta.delta_log import standing_commits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState
    from rw_sql.runtime.support.warehouse import Warehouse


def commit_key(source_id: int, split: str) -> str:
    """The name of a split in a view's commits.

    The name includes the source, because a view may read several sources, even of the same topic.
    """
    return f"{source_id}/{split}"


def reached_states(
    warehouse: Warehouse,
    table: str,
    source_id: int,
    states: Mapping[str, SplitState],
    since: Mapping[str, int],
    *,
    before: int | None = None,
) -> dict[str, SplitState]:
    """Returns the states with the terms that the view's latest commits have stored.

    ``since`` maps each split to the epoch of the statement that set the split's position. A commit counts only if its
    run started at this epoch or later, and before the epoch ``before`` (None: no limit). If the rows of the last batch
    are in the view, but the checkpoint does not contain this batch, the result has the positions after this batch,
    because the upstream's log must also contain the records of this batch.
    """
    found = dict(states)
    waiting = set(states)
    for _, commit in standing_commits(warehouse, table):
        if not waiting:
            break
        if before is not None and commit.epoch >= before:
            continue
        for split in sorted(waiting):
            if commit.epoch < since[split]:
                waiting.discard(split)
                continue
            key = commit_key(source_id, split)
            if key not in commit.ranges:
                continue
            waiting.discard(split)
            end, term = commit.ranges[key][1], commit.terms.get(key)
            if term is not None and end >= found[split].offset:
                found[split] = replace(found[split], offset=end, term=term)
    return found
