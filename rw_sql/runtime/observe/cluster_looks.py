"""Requests the end offsets of the upstreams of many sources. The sources of one cluster share their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, PooledConnector, Upstream, UpstreamSplit
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context

    Looked = tuple[SourceRecord, dict[str, str]]
    """A source and its resolved options."""


def by_cluster(
    context: Context, snapshot: Snapshot, sources: Iterable[SourceRecord]
) -> tuple[list[list[Looked]], list[Looked]]:
    """Returns the sources in groups that share a cluster, and the sources for which separate requests are needed. A
    source with a secret that cannot be read is in neither of the two results. The status of the source's job shows the
    reason."""
    apart: list[Looked] = []
    together: dict[Hashable, list[Looked]] = {}
    for source in sources:
        try:
            options = context.options_of(source, snapshot)
        except SqlError:
            continue
        kind = connector(source.connector)
        if isinstance(kind, PooledConnector):
            together.setdefault((source.connector, kind.pool_key(options)), []).append((source, options))
        else:
            apart.append((source, options))
    apart += [group[0] for group in together.values() if len(group) == 1]
    return [group for group in together.values() if len(group) > 1], apart


def look_at_cluster(group: Sequence[Looked], seconds: float = RESOLVE_TIMEOUT_SECONDS) -> dict[int, Upstream]:
    """Returns the ends of the sources of one cluster, by source id. The starts of the splits are not requested; in the
    result, they are 0.

    A source with a split whose end cannot be read is left out. Raises OSError if the cluster does not respond to a
    request within ``seconds``.
    """
    source, options = group[0]
    kind = connector(source.connector)
    if not isinstance(kind, PooledConnector):
        raise TypeError(f"{source.connector} answers for one source at a time")
    topics_of = {source.id: kind.named_topics(options) for source, options in group}
    topics = kind.pooled_topics(options, {topic for names in topics_of.values() for topic in names}, timeout=seconds)
    ends = kind.pooled_ends(options, {split for topic in topics.values() for split in topic.splits}, timeout=seconds)
    found: dict[int, Upstream] = {}
    for id_, names in topics_of.items():
        present = [topics[topic] for topic in names if topic in topics]
        if any(split not in ends for topic in present for split in topic.splits):
            continue
        found[id_] = Upstream(
            splits={
                split: UpstreamSplit(split=split, start=0, end=ends[split], incarnation=topic.incarnation)
                for topic in present
                for split in topic.splits
            },
            missing=tuple(topic for topic in names if topic not in topics),
        )
    return found
