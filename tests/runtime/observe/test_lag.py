"""SHOW JOBS queries all upstreams at once, and does not wait for unreachable ones."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import AssignSplits, MaterializedViewRecord, Operation, PutObject, SourceRecord
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.observe.lag import LOOK_SECONDS, measure_lags
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCES = 6


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.long
def test_upstreams_that_do_not_answer_cost_one_deadline_together(tmp_path: Path, silent_address: str) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    metastore = Metastore.open(warehouse.uri)
    context = Context(warehouse=warehouse, metastore=metastore, sessions=cast("Any", None), owner="a test")
    changes: list[Any] = []
    for id_ in range(1, SOURCES + 1):
        definition = (
            f"CREATE SOURCE s{id_} (id INT) WITH (connector = 'kafka', topic = 't', "
            f"properties.bootstrap.server = '{silent_address}') FORMAT PLAIN ENCODE JSON"
        )
        changes += [
            PutObject(
                record=SourceRecord(
                    id=id_, name=f"s{id_}", definition=definition, connector="kafka", options=(), is_shared=True
                )
            ),
            AssignSplits(fragment=f"ingest-{id_}", splits=("t:0",)),
        ]
    view = MaterializedViewRecord(
        id=SOURCES + 1, name="v", definition="", query="", schema="", inputs=tuple(range(1, SOURCES + 1))
    )
    changes.append(PutObject(record=view))
    operation = Operation(kind="TEST", statement="", objects=(), changes=tuple(changes))
    snapshot = metastore.commit(operation, based_on=metastore.snapshot()).snapshot
    started = time.monotonic()
    behind = measure_lags(context, snapshot)
    assert time.monotonic() - started < LOOK_SECONDS + 3
    assert behind == {**{f"ingest-{id_}": None for id_ in range(1, SOURCES + 1)}, f"mv-{SOURCES + 1}": 0}
