"""The status of a statement in a notebook: shown in the output of its cell, updated there, and gone at the end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from rw_sql.cli.terminal.status_line import Doing
from rw_sql.magics.status import CellStatus, StatusText
from rw_sql.runtime.observe.statement_progress import JobPhase
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

MAKING = JobPhase(job="mv-9", name="<m>", phase="reading history", done=300, total=5000)
STARTING = JobPhase(job="mv-8", name="n", phase="STARTING")


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_the_status_has_a_bar_where_rows_are_known() -> None:
    text = StatusText(Doing("waiting for its backfill", (MAKING, STARTING)), 72.9)
    assert repr(text) == (
        "running for 1 min 13 s: waiting for its backfill; <m> (mv-9): reading history, 300 of 5,000 rows;"
        " n (mv-8): STARTING"
    )
    html = text._repr_html_()
    assert html.startswith("1 min 13 s  waiting for its backfill<br>")
    assert '<progress value="300" max="5000"></progress> &lt;m&gt; (mv-9)' in html
    assert html.count("<progress") == 1
    assert StatusText(Doing("x", (STARTING,) * 10), 1)._repr_html_().endswith("<br>2 more")


@pytest.mark.usefixtures("shell")
def test_the_status_is_one_output_empty_at_the_end_and_during_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.magics.status._REDRAW_SECONDS", 0.05)
    described = threading.Semaphore(0)

    def describe() -> Doing:
        described.release()
        return Doing("waiting")

    def wait(times: int) -> None:
        for _ in range(times):
            assert described.acquire(timeout=LAST_RESORT_SECONDS)

    status = CellStatus(describe)
    with capture_output() as captured:
        with status.running():
            wait(3)
            with status.hidden():
                pass
            wait(2)
        with status.running():
            pass  # too short to be shown
    shown: list[Any] = captured.outputs
    texts = [output.data["text/plain"] for output in shown]
    begun = [at for at, output in enumerate(shown) if not output.update]
    assert len(begun) == 2
    assert begun[0] == 0
    assert texts[begun[1] - 1] == ""
    assert texts[-1] == ""
    assert all(text.startswith("running for ") for at, text in enumerate(texts) if at in begun)
