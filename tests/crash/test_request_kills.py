"""The owner is killed while it runs the statement of another session, and the process that ends a stuck owner too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.remote import remote_executor
from rw_sql.runtime.remote.remote_executor import RemoteExecutor
from rw_sql.runtime.support.faults import FAULT
from rw_sql.runtime.support.processes import process_start
from rw_sql.syntax import parse_statement
from tests.crash.request_child import context_of, serving
from tests.support.waits import LAST_RESORT_SECONDS
from tests.support.warehouses import WrittenWarehouse

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
REQUEST_POINTS = ("request.taken", "request.before_answer", "takeover.ended")
"""The fault points of statements that another process runs, and of ``rw-sql takeover``."""

SOURCE = (
    "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '9', fields.id.kind = 'sequence') "
    "FORMAT PLAIN ENCODE JSON"
)


def _child(written: WrittenWarehouse, what: str, point: str) -> subprocess.Popen[str]:
    """A process that is ready."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.request_child", written.uri, what],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, FAULT: point},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize(("point", "is_done"), [("request.taken", False), ("request.before_answer", True)])
def test_the_statement_of_a_killed_owner_is_not_repeated(
    point: str, is_done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_executor, "_OWNER_SECONDS", 0.05)
    written = WrittenWarehouse(tmp_path / "warehouse")
    owner = _child(written, "serve", point)
    client, text = RemoteExecutor(context_of(written.uri, "client")), SOURCE
    with pytest.raises(SqlError, match="ended before it answered: the statement may or may not have taken effect"):
        client.run(text, parse_statement(text), SessionState())
    assert owner.wait(LAST_RESORT_SECONDS) == -signal.SIGKILL
    assert [each.kind for each in Metastore.open(written.uri).operations()] == ["CREATE SOURCE"] * is_done
    server = serving(written)
    server.look()
    assert len(Metastore.open(written.uri).operations()) == is_done
    assert Metastore.open(written.uri).jobs.requests.unanswered("default") == ()


def test_a_takeover_that_is_killed_is_repeated(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    stuck = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        lease = written.lease(applied=0)
        jobs = written.metastore.jobs
        assert jobs.take_lease(
            replace(
                lease,
                owner="stuck",
                python_pid=stuck.pid,
                jvm_pid=stuck.pid,
                python_start=process_start(stuck.pid),
                jvm_start=process_start(stuck.pid),
            ),
            replacing=lease,
        )
        stuck.send_signal(signal.SIGSTOP)
        assert _child(written, "take-over", "takeover.ended").wait(LAST_RESORT_SECONDS) == -signal.SIGKILL
        assert stuck.wait(LAST_RESORT_SECONDS) == -signal.SIGKILL
        held = Metastore.open(written.uri).jobs.lease()
        assert held is not None
        assert (held.owner, held.is_released) == ("stuck", False)
        again = _child(written, "take-over", "")
        assert again.wait(LAST_RESORT_SECONDS) == 0
    finally:
        stuck.kill()
        stuck.wait()
