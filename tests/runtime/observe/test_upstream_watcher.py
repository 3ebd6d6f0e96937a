"""How often the upstreams of sources at rest are checked, and of which."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.connectors.files.source import PosixFsConnector
from rw_sql.connectors.registry import BUILT_IN
from rw_sql.model.job_specs import IngestSpec
from rw_sql.runtime.control import rest_conditions
from rw_sql.runtime.observe import upstream_watcher
from tests.runtime.controlled_jobs import wait_until
from tests.runtime.rested_sources import FakeReader

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_a_source_is_looked_at_as_often_as_its_reader_would_and_no_more() -> None:
    """Listing a folder costs requests: a source at rest costs no more of them than a running one."""
    for options, seconds in (({}, 60.0), ({"refresh.interval.sec": "3600"}, 3600.0)):
        group = upstream_watcher._Group(kind=PosixFsConnector(), options={})
        assert group.interval(options) == seconds
    group.members = dict.fromkeys(("one", "other"), cast("Any", None))
    group.turns = {"one": upstream_watcher._Turn()}
    # The share of a core wins over all intervals: both sources together take 0.75 % of it.
    group.note_check("one", {}, 1.0, 1.0)
    assert group.turns["one"].due_at - time.monotonic() > 250
    group.spent = (1.0, 1.1)
    assert group.wait_after() > 30


def test_an_upstream_that_hangs_is_looked_at_rarely_and_reported_after_three_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LEAST_SECONDS", "_ONE_BY_ONE_SECONDS"):
        monkeypatch.setattr(upstream_watcher, name, 0.02)
    found: list[upstream_watcher.Finding] = []
    looks: dict[str, int] = {"good": 0, "bad": 0}

    def look(options: Mapping[str, str]) -> Upstream:
        name = options["name"]
        looks[name] += 1
        if name == "bad":
            threading.Event().wait(0.01)
            return Upstream(error="it hangs")
        return Upstream(splits={"a": UpstreamSplit(split="a", start=0, end=5)})

    plain: Any = SimpleNamespace(spec=SimpleNamespace(name="own"), look=look, split_topic=lambda split: split)
    watcher = upstream_watcher.UpstreamWatcher(found.append)
    state = next(iter(rest_conditions.states_of(FakeReader(spec=cast("Any", None), positions={"a": 5})).values()))
    # Both share a thread.
    for number, name in ((16, "bad"), (32, "good")):
        watched = upstream_watcher.Watched(source_id=number, states={"a": state})
        watcher.watch(name, plain, {"name": name}, watched)
    wait_until(lambda: any(each.problems for each in found), "it is reported")
    watcher.stop()
    assert looks["bad"] >= 3
    assert looks["good"] >= looks["bad"]


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in ("delta", "jdbc", "iceberg")])
def test_no_source_rests_whose_running_reader_alone_receives_its_records(name: str) -> None:
    """No look sees a message that an MQTT broker sends: a source at rest would never wake."""
    is_cdc = name.endswith("-cdc")
    columns, written = ("", "") if is_cdc else (" (id INT)", " FORMAT PLAIN ENCODE JSON")
    spec = IngestSpec(
        job="ingest-1",
        source_id=1,
        name="s",
        definition=f"CREATE SOURCE s{columns} WITH (connector = '{name}'){written}",
        options=(),
        generation=1,
        splits=("0",),
        since=1,
    )
    assert rest_conditions.may_rest(spec) is (name not in ("mqtt", "mysql-cdc", "postgres-cdc"))


def test_one_by_one_connectors_are_watched_too() -> None:
    """A connector without pooled requests: a look at each source."""
    plain: Any = SimpleNamespace(
        spec=SimpleNamespace(name="own"),
        look=lambda _: Upstream(splits={"a": UpstreamSplit(split="a", start=0, end=5)}),
        split_topic=lambda split: split,
    )
    found: list[upstream_watcher.Finding] = []
    watcher = upstream_watcher.UpstreamWatcher(found.append)
    state = next(iter(rest_conditions.states_of(FakeReader(spec=cast("Any", None), positions={"a": 3})).values()))
    watcher.watch("ingest-1", plain, {}, upstream_watcher.Watched(source_id=1, states={"a": state}))
    wait_until(lambda: any(each.behind == {"ingest-1": 2} for each in found), "it is found")
    watcher.watch("ingest-1", plain, {}, upstream_watcher.Watched(source_id=1, states={"a": replace(state, offset=5)}))
    watcher.stop()
