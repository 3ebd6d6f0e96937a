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


@pytest.mark.usefixtures("shell")
def test_an_error_of_the_store_is_shown_above_the_last_status_and_ends_with_it(written: WrittenWarehouse) -> None:
    served = ServedWarehouse(written.context())
    catalog, away, looks = written.folder / "rw_catalog", written.folder / "away", 0

    def look() -> WarehouseStatus:
        nonlocal looks
        looks += 1
        if looks == 2:
            catalog.rename(away)
        if looks == 3:
            away.rename(catalog)
        return served.status()

    with capture_output() as captured:
        watch(look, seconds=0.01, looks=3)
    texts = [output.data["text/plain"] for output in captured.outputs]
    assert len(texts) == 3
    assert texts[1].startswith("the status cannot be read: ")
    assert "the last status is from 0" in texts[1]
    assert "orders is STALLED: type RESUME SOURCE orders;" in texts[1]
    assert "<b>the status cannot be read: " in captured.outputs[1].data["text/html"]
    assert "cannot be read" not in texts[2]


@pytest.mark.usefixtures("shell")
def test_without_a_first_status_it_shows_the_error_alone(written: WrittenWarehouse) -> None:
    served = ServedWarehouse(written.context())
    (written.folder / "rw_catalog").rename(written.folder / "away")
    with capture_output() as captured:
        watch(served.status, seconds=0.01, looks=2)
    assert [output.data["text/plain"].partition(":")[0] for output in captured.outputs] == [
        "the status cannot be read"
    ] * 2
