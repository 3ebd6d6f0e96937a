"""A warehouse with one refreshable table. The table's job can be killed or suspended between any two of its steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from rw_sql.metastore.records import DropObject, Operation, PutObject
from rw_sql.metastore.refresh_records import IDLE, RefreshRecord
from rw_sql.model.job_specs import RefreshSpec, desired_jobs
from rw_sql.model.refresh_states import begun, refresh_of
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.refresh.job import RefreshJob
from tests.support.waits import LAST_RESORT_SECONDS as SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"word","type":"string","nullable":true,"metadata":{}}]}'
)
TABLE, SOURCE, REFRESH = 2, 1, 3
JOB = f"mv-{TABLE}"


class KilledHere(BaseException):
    """Raised in place of SIGKILL, so that this run does not continue."""


@dataclass
class Sessions:
    """The number of Spark sessions that the jobs have requested, and the sessions that they have not released."""

    requested: int = 0
    held: list[Any] = field(default_factory=list)

    def new(self, packages: tuple[str, ...] = ()) -> Any:
        self.requested += 1
        self.held.append(object())
        return self.held[-1]

    def release_if_alive(self, session: Any) -> None:
        if session is not None:
            self.held.remove(session)


@dataclass
class World:
    """A warehouse with one refreshable table, and the content of its upstream."""

    context: Context
    upstream: dict[int, str] = field(default_factory=dict)
    fails: Exception | None = None
    kill_at: str = ""
    passed: list[str] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Maps fault points to functions. A function is called once, when the job first passes the fault point."""
    sessions: Sessions = field(default_factory=lambda: Sessions())

    @property
    def record(self) -> RefreshRecord:
        record = refresh_of(self.context.metastore.snapshot(), TABLE)
        assert record is not None
        return record

    @property
    def staging(self) -> str:
        return self.context.warehouse.staging(TABLE, 1)

    def spec(self) -> RefreshSpec:
        spec = desired_jobs(self.context.metastore.snapshot())[JOB]
        assert isinstance(spec, RefreshSpec)
        return spec

    def refresh(self, now_ms: int = 5) -> None:
        self.put(begun(self.record, now_ms))

    def put(self, *changes: PutObject | DropObject) -> None:
        metastore = self.context.metastore
        operation = Operation(kind="TEST", statement="-- test", objects=("t",), changes=changes)
        metastore.commit(operation, based_on=metastore.snapshot())

    def held(self) -> dict[int, str]:
        rows = DeltaTable(self.context.warehouse.data(TABLE, 1)).to_pyarrow_table().to_pylist()
        made = {row["id"]: row["word"] for row in rows}
        assert len(made) == len(rows)
        return made

    def fault(self, name: str) -> None:
        self.passed.append(name)
        self.meanwhile.pop(name, lambda: None)()
        if name == self.kill_at:
            self.kill_at = ""
            raise KilledHere(name)

    def run_until(self, is_reached: Callable[[], bool]) -> RefreshJob | None:
        """Runs the job once, until the condition holds, the job fails, or the job is killed."""
        try:
            job = RefreshJob.start(self.context, self.spec())
        except KilledHere:
            return None
        deadline = time.monotonic() + SECONDS
        while not is_reached() and job.failure() is None:
            assert time.monotonic() < deadline, (self.record, self.passed[-5:])
            time.sleep(0.01)
        if job.failure() is None:
            job.stop()
        return job

    def is_idle(self) -> bool:
        return self.record.status == IDLE
