"""``%rw watch`` on a warehouse that the metastore wrote, in an IPython shell without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from rw_sql.magics.watch import watch
from rw_sql.runtime.status.served import ServedWarehouse
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.runtime.status.reading import WarehouseStatus


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(
        written.connection(1, "broker"), *written.source(2, "orders", uses=(1,)), written.view(3, "totals", 2)
    )
    written.lease(applied=1)
    written.status("ingest-2", "STALLED", reason="EXPIRED t:0 <b>: RESUME SOURCE orders")
    written.status("mv-3", "RUNNING")
    return written


@pytest.mark.usefixtures("shell")
def test_the_jobs_are_shown_and_shown_again_in_their_place(written: WrittenWarehouse) -> None:
    served = ServedWarehouse(written.context())
    with capture_output() as captured:
        watch(served.status, seconds=0.01, looks=3)
    shown: list[Any] = captured.outputs
    assert len(shown) == 3
    assert [output.update for output in shown] == [False, True, True]
    text, html = shown[-1].data["text/plain"], shown[-1].data["text/html"]
    assert "orders is STALLED: type RESUME SOURCE orders;" in text
    assert "jobs: 1 RUNNING, 1 STALLED" in text
    assert "EXPIRED t:0 &lt;b&gt;" in html
    assert "<b>orders is STALLED: type RESUME SOURCE orders;</b>" in html


@pytest.mark.usefixtures("shell")
def test_an_interrupt_ends_it_and_the_newest_look_stays(written: WrittenWarehouse) -> None:
    served = ServedWarehouse(written.context())
    looks = 0

    def look() -> WarehouseStatus:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt
        return served.status()

    with capture_output() as captured:
        watch(look, seconds=0.01)
    assert looks == 3
    assert len(captured.outputs) == 2
