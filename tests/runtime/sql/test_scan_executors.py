"""A query over a source on a cluster whose executors cannot read the source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.errors import PACKAGE_MISSING, STORE_UNREACHABLE, ErrorCode, SqlError
from rw_sql.runtime.sql import source_scan as module
from rw_sql.runtime.sql.source_scan import SourceScan
from rw_sql.runtime.support.failures import StalledError


@pytest.mark.parametrize(
    ("reason", "code"), [("LIBRARIES nats: …", PACKAGE_MISSING), ("UNSHARED /w: …", STORE_UNREACHABLE)]
)
def test_a_query_over_a_source_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, reason: str, code: ErrorCode
) -> None:
    steps: list[str] = []

    def refuse(*given: Any) -> None:
        steps.append("executors")
        raise StalledError(reason)

    for name in ("definition_of", "packages_of", "packages_on_executors"):
        monkeypatch.setattr(module, name, lambda *given: ())
    monkeypatch.setattr(module, "source_columns", lambda statement: [("a", "INT")])
    monkeypatch.setattr(module, "read_records", lambda *given: steps.append("reader"))
    monkeypatch.setattr(module, "require_executors", refuse)
    context: Any = SimpleNamespace(warehouse=None, sessions=SimpleNamespace(load=lambda packages: None))
    source: Any = SimpleNamespace(name="s", connector="kafka")
    kind: Any = None
    scan = SourceScan(context=context, source=source, kind=kind, options={}, ranges={"t:0": (0, 1)}, lives={})
    spark: Any = None
    with pytest.raises(SqlError) as refused:
        scan._rows(spark)
    assert refused.value.kind is code
    assert refused.value.message == f'source "s" cannot be read by executors: {reason}'
    # The reader makes the files of secrets that the executors need.
    assert steps == ["reader", "executors"]
