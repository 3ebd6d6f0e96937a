"""Where the query of a sink begins in the change feed of its input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from rw_sql.metastore import Metastore
from rw_sql.model.view_inputs import ViewInput
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import shape, sink_spec


class Reads:
    """Records the options with which a query reads its input."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    @property
    def readStream(self) -> Self:  # noqa: N802
        return self

    def format(self, _: str) -> Self:
        return self

    def option(self, name: str, value: str) -> Self:
        self.options[name] = value
        return self

    def load(self, _: str) -> Self:
        return self

    def where(self, _: str) -> Self:
        return self

    def selectExpr(self, *_: str) -> Self:  # noqa: N802
        return self


def test_a_sink_continues_at_its_checkpoint_although_its_first_version_was_cleaned_up(
    tmp_path: Path,
) -> None:
    warehouse = Warehouse.at(str(tmp_path / "w"))
    table = warehouse.data(1, 1)
    rows = pa.table({"id": pa.array([1], pa.int32()), "word": ["a"]})
    for _ in range(3):
        write_deltalake(table, rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
    keyed = ViewInput(
        id=1,
        name="t",
        kind="table",
        generation=1,
        columns=("id", "word"),
        stored=("id", "word"),
        watermark=None,
        keys=("id",),
    )
    spec = replace(sink_spec(shape("upsert", "id")), inputs=(keyed,), starts=((1, 0),))
    context = Context(
        warehouse=warehouse,
        metastore=Metastore.open(warehouse.uri),
        sessions=None,  # type: ignore[arg-type]  # nothing here asks Spark
        owner="me",
    )
    checkpoint = warehouse.sink_checkpoint(2, 1)
    unused: Any = None
    sink = Sink(
        context=context,
        spec=spec,
        run=1,
        progress=unused,
        writer=unused,
        checkpoint=checkpoint,
        done=-1,
        upkeep=unused,
        streaming=unused,
    )

    def options() -> dict[str, str]:
        reads: Any = Reads()
        sink._frame(reads)
        return dict(reads.options)

    assert options()["startingVersion"] == "0"
    for number in (0, 1):
        file = Path(checkpoint) / "offsets" / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("v1\n{}\n")
        # Until the first batch is complete, Spark determines its begin again at a restart.
        assert ("startingVersion" in options()) == (number == 0)
    DeltaTable(table).create_checkpoint()
    (Path(table) / "_delta_log" / f"{0:020}.json").unlink()
    DeltaTable(table).alter.add_columns([Field("more", PrimitiveType("string"))])
    assert "startingVersion" not in options()
