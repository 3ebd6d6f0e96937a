"""Sources on one simulated Kafka cluster in memory, each with a view. The jobs of the sources and views rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import PooledTopic, Upstream, UpstreamSplit
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.metastore.records import (
    AssignSplits,
    MaterializedViewRecord,
    PutObject,
    PutSplitStates,
    SecretRecord,
    SourceRecord,
)
from rw_sql.runtime.control import rest_conditions, rest_scheduler
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.observe import upstream_watcher
from tests.runtime.controlled_jobs import FakeJob, Jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from rw_sql.model.job_specs import JobSpec

VIEW_SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'


class Cluster(KafkaConnector):
    """Kafka's connector on a simulated cluster in memory. ``ends`` maps each split to its end."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.error: str | None = None
        self.topics_error: str | None = None
        self.topics_looks = 0
        self.unreadable: set[str] = set()
        self.requests: list[int] = []
        self.looks = 0
        self.password: str | None = None

    def look(self, options: Mapping[str, str], *, timeout: float = 8.0) -> Upstream:
        self.looks += 1
        topic = options["topic"]
        splits = {
            split: UpstreamSplit(split=split, start=0, end=end, cluster="c", incarnation=self.ids.get(topic, topic))
            for split, end in self.ends.items()
            if split.startswith(f"{topic}:")
        }
        return Upstream(splits=splits, cluster="c", error=self.error)

    def pooled_ends(
        self, options: Mapping[str, str], splits: Collection[str], *, timeout: float = 8.0
    ) -> Mapping[str, int]:
        self.requests.append(len(splits))
        if self.error is not None:
            raise ConnectionError(self.error)
        if self.password is not None and options["properties.sasl.password"] != self.password:
            raise ConnectionError("h:1: SASL authentication error")
        return {split: self.ends[split] for split in splits if split in self.ends.keys() - self.unreadable}

    def pooled_topics(
        self, options: Mapping[str, str], topics: Collection[str], *, timeout: float = 8.0
    ) -> Mapping[str, PooledTopic]:
        self.topics_looks += 1
        if self.topics_error is not None:
            raise ConnectionError(self.topics_error)
        found = {}
        for topic in topics:
            splits = frozenset(split for split in self.ends if split.startswith(f"{topic}:"))
            if splits:
                found[topic] = PooledTopic(incarnation=self.ids.get(topic, topic), splits=splits)
        return found


@dataclass(slots=True)
class FakeReader(FakeJob):
    """A reader that has read all records of one topic. ``session`` is the Spark session that the reader would
    release."""

    kind: Any = None
    options: dict[str, str] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    on_stop: Any = None
    session: None = None

    @property
    def identities(self) -> Mapping[str, tuple[str | None, str | None]]:
        return {split: ("c", split.partition(":")[0]) for split in self.positions}

    def stop(self) -> None:
        if self.on_stop is not None:
            self.on_stop()
        FakeJob.stop(self)


class World(Jobs):
    """Sources on one simulated cluster, each with a view."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.cluster = Cluster()
        self.on_stop: Any = None
        self.make = self._make
        monkeypatch.setattr(upstream_watcher, "LEAST_SECONDS", 0.02)
        for place in (rest_conditions, rest_scheduler):
            monkeypatch.setattr(place, "kind_of", lambda _: self.cluster)

    def _make(self, spec: JobSpec, run: int) -> FakeJob:
        claimed = self.metastore.jobs.claim_run(spec.job, self.metastore.snapshot().epoch, "a test")
        if not spec.job.startswith("ingest-"):
            return FakeJob(spec=spec, run=claimed.run)
        topic = f"t{spec.object_id}"
        positions = {split: end for split, end in self.cluster.ends.items() if split.startswith(f"{topic}:")}
        made = FakeReader(spec=spec, run=claimed.run, kind=self.cluster, options={"topic": topic}, positions=positions)
        made.on_stop = self.on_stop
        return made

    def source(
        self, id_: int, *, splits: int = 1, secret: str | None = None, more: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Creates a source ``s<id>`` of the topic ``t<id>``, and a view with the next id. ``secret`` is the name of the
        secret with the source's password, and ``more`` are further options."""
        topic = f"t{id_}"
        options = (("topic", topic), ("properties.bootstrap.server", "h:1"), *more)
        written = ", ".join(f"{key} = '{value}'" for key, value in options)
        written += f", properties.sasl.password = SECRET {secret}" if secret is not None else ""
        definition = f"CREATE SOURCE s{id_} (id INT) WITH (connector = 'kafka', {written}) FORMAT PLAIN ENCODE JSON"
        names = [f"{topic}:{number}" for number in range(splits)]
        self.cluster.ends |= dict.fromkeys(names, 0)
        fragment = f"ingest-{id_}"
        self.commit(
            PutObject(
                record=SourceRecord(
                    id=id_, name=f"s{id_}", definition=definition, connector="kafka", options=options, is_shared=True
                )
            ),
            PutObject(
                record=MaterializedViewRecord(
                    id=id_ + 1, name=f"v{id_}", definition="", query="SELECT id", schema=VIEW_SCHEMA, inputs=(id_,)
                )
            ),
            AssignSplits(fragment=fragment, splits=tuple(names)),
            PutSplitStates(fragment=fragment, states=dict.fromkeys(names, '{"offset":0}')),
        )

    def secret(self, id_: int, name: str, file: Path) -> None:
        """Creates a secret whose value is the content of a file."""
        definition = f"CREATE SECRET {name} WITH (backend = 'file', path = '{file}')"
        self.commit(PutObject(record=SecretRecord(id=id_, name=name, definition=definition, backend="file")))

    def rest(self, *ids: int) -> None:
        """Runs the reconciler until these sources and their views rest."""
        jobs = [job for id_ in ids for job in (f"ingest-{id_}", f"mv-{id_ + 1}")]
        self.reach(lambda: all(self.reason(job).startswith("idle: ") for job in jobs), f"{jobs} rest")

    def reason(self, job: str) -> str:
        status = self.status(job)
        return (status.reason or "") if status is not None else ""

    def again(self) -> None:
        """Ends the reconciler, and begins another reconciler."""
        self.reconciler.stop_all()
        self.reconciler.report_stopped()
        self.starts.clear()
        self.reconciler = Reconciler(self.context)

    def passes(self) -> None:
        """Runs the reconciler thirty times."""
        for _ in range(30):
            self.reconciler.reconcile()
            self.reconciler.wait_changed(0.01)

    def started(self) -> list[str]:
        return [spec.job for spec in self.starts]
