"""The fixture of the tests of refreshes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import PutObject, SourceRecord, TableRecord
from rw_sql.metastore.refresh_records import RefreshRecord
from rw_sql.runtime.delta import job_output as output_module
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.refresh import job as job_module
from rw_sql.runtime.refresh import staging as staging_module
from rw_sql.runtime.refresh.staging import Staged, Staging
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.query.maintained_form import KEEP
from tests.runtime.refresh.refresh_world import REFRESH, SCHEMA, SOURCE, TABLE, Sessions, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    metastore = Metastore.open(str(tmp_path))
    sessions: Any = Sessions()
    made = World(
        context=Context(warehouse=Warehouse(str(tmp_path)), metastore=metastore, sessions=sessions, owner="me"),
        sessions=sessions,
    )
    source = SourceRecord(
        id=SOURCE,
        name="t",
        definition="CREATE SOURCE t (id BIGINT, word VARCHAR) WITH (connector = 'jdbc', "
        "jdbc.url = 'jdbc:postgresql://db/shop', table.name = 'orders')",
        connector="jdbc",
        options=(),
        is_shared=False,
    )
    table = TableRecord(
        id=TABLE,
        name="t",
        definition="CREATE TABLE t (id BIGINT PRIMARY KEY, word VARCHAR) WITH (connector = 'jdbc')",
        query="SELECT `id`, `word` FROM `t`",
        inputs=(),
        schema=SCHEMA,
        keys=("id",),
        primary_key=("id",),
        source_id=SOURCE,
        has_change_feed=True,
    )
    refresh = RefreshRecord(id=REFRESH, name="t", table_id=TABLE)
    made.put(*(PutObject(record=record) for record in (source, table, refresh)))

    def load(spark: Any, reader: Any, options: Any, table: Any, output: Any, staging: Staging) -> Staged:
        if made.fails is not None:
            raise made.fails
        held, rows = made.held(), dict(made.upstream)
        changed: list[tuple[int, str | None, bool]]
        changed = [(key, word, True) for key, word in rows.items() if held.get(key) != word]
        changed += [(key, None, False) for key in held if key not in rows]
        staging.remove()
        if not changed:
            return Staged(rows=0, chunks=0)
        count = min(3, len(changed))
        columns = dict(zip(("id", "word", KEEP), zip(*changed, strict=True), strict=True))
        staging.write_rows(pa.table(columns), count)
        return Staged(rows=len(changed), chunks=count)

    @contextmanager
    def watched(spark: Any, group: str, tell: Callable[[int, int], bool]) -> Iterator[Callable[[], None]]:
        tell(0, 0)
        yield lambda: None

    monkeypatch.setattr(job_module, "load", load)
    monkeypatch.setattr(job_module, "watched", watched)
    for module in (job_module, output_module, staging_module):
        monkeypatch.setattr(module, "fault", made.fault)
    return made
