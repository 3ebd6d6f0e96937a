"""The statuses of jobs for which the present owner has not reported one yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.runtime.control.owner import Owner
from rw_sql.runtime.control.reconciler import Reconciler
from tests.runtime.control.test_blocks import Session

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = "no process runs the jobs of this warehouse yet"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A source with 20 records and a view that reads it."""
    made = Session(tmp_path)
    made.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20')",
        "SET statement_timeout = '200ms'",
    )
    made.give_a_reader()
    return made


def test_jobs_of_an_owner_without_a_status_are_starting(session: Session) -> None:
    (source,), (view,) = (session.metastore.snapshot().all(kind) for kind in ("source", "materialized_view"))
    assert session.sql("SHOW SOURCES")[0][2:4] == ("WAITING", NOBODY)
    session.pretend_to_own()
    assert session.sql("SHOW SOURCES")[0][2:4] == ("STARTING", "")
    assert session.sql("SHOW MATERIALIZED VIEWS")[0][1:3] == ("STARTING", "")
    assert [row[:5] for row in session.sql("SHOW JOBS")] == [
        (f"ingest-{source.id}", "source", "s", "STARTING", ""),
        (f"mv-{view.id}", "materialized_view", "v", "STARTING", ""),
    ]
    assert session.refused("FLUSH").message.endswith('source "s" is 20 records behind (its job has not started yet)')


def test_statuses_of_a_killed_owner_are_no_longer_valid(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,), (view,) = (session.metastore.snapshot().all(kind) for kind in ("source", "materialized_view"))
    reader, reading, dropped = f"ingest-{source.id}", f"mv-{view.id}", "mv-99"
    facts = session.metastore.jobs
    facts.write_job_status(
        [
            JobStatus(job=reader, object_id=source.id, state="STALLED", reason="no broker", restarts=2, updated_ms=1),
            JobStatus(job=reading, object_id=view.id, state="RUNNING", run=7, updated_ms=1),
            JobStatus(job=dropped, object_id=99, state="RUNNING", run=3, updated_ms=1),
        ]
    )
    assert session.sql("SHOW SOURCES")[0][2] == "STOPPED"
    monkeypatch.setattr(Reconciler, "reconcile", lambda _: None)
    monkeypatch.setattr(session.context.sessions, "jvm_pid", 0, raising=False)
    owner = Owner(session.context)
    owner._try_take()
    said = {job: (status.state, status.reason, status.run) for job, status in facts.job_statuses().items()}
    assert said == {
        reader: ("STARTING", None, None),
        reading: ("STARTING", None, None),
        dropped: ("STOPPED", None, None),
    }
    # FLUSH does not skip a job that was stalled under the killed owner.
    assert "is 20 records behind (STARTING)" in session.refused("FLUSH").message
