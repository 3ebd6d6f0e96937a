"""Where SELECT … FROM source begins to read, without Spark."""

from __future__ import annotations

import pytest

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.startup import birth_of
from rw_sql.runtime.sql.source_scan import _starts

OPTIONS = {"stream": "s", "scan.startup.mode": "latest"}


def upstream(start: int, end: int, incarnation: str | None) -> Upstream:
    return Upstream(splits={"s": UpstreamSplit(split="s", start=start, end=end, incarnation=incarnation)})


@pytest.mark.parametrize(
    ("then", "now", "start"),
    [
        ("T", "T", 100),
        # The stream's first message, whose time is its identity, is gone.
        ("T", None, 100),
        (None, "T", 100),
        ("T", "U", 150),
    ],
)
def test_latest_is_the_end_at_create_source_although_the_identity_became_known_or_unknown(
    then: str | None, now: str | None, start: int
) -> None:
    source = SourceRecord(
        id=1,
        name="r",
        definition="",
        connector="rabbitmq",
        options=tuple(OPTIONS.items()),
        is_shared=True,
        birth=birth_of("rabbitmq", tuple(OPTIONS.items()), upstream(0, 100, then)),
    )
    found = _starts(connector("rabbitmq"), OPTIONS, OPTIONS, source, upstream(40, 150, now))
    assert found == {"s": start}
