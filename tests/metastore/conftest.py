from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import (
    AssignSplits,
    Lease,
    MaterializedViewRecord,
    Operation,
    PutObject,
    PutSplitStates,
    SourceRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore.records import Change

ROOT = Path(__file__).parents[2]


class Make:
    """Short ways to records and operations."""

    def source(self, id: int, name: str, topic: str = "orders") -> SourceRecord:
        return SourceRecord(
            id=id,
            name=name,
            definition=f"CREATE SOURCE {name} WITH (connector = 'kafka', topic = '{topic}')",
            connector="kafka",
            options=(("topic", f"'{topic}'"), ("properties.bootstrap.servers", "'localhost:9092'")),
            is_shared=True,
        )

    def view(self, id: int, name: str, *inputs: int) -> MaterializedViewRecord:
        return MaterializedViewRecord(
            id=id,
            name=name,
            definition=f"CREATE MATERIALIZED VIEW {name}",
            query="SELECT 1",
            inputs=inputs,
            schema="{}",
        )

    def operation(self, *changes: Change, kind: str = "TEST", is_unsafe: bool = False, objects: tuple[str, ...] = ()):
        return Operation(
            kind=kind,
            statement=f"{kind} statement",
            objects=objects,
            changes=changes,
            is_unsafe=is_unsafe,
            actor="tester",
        )

    def source_with_splits(self, id: int, name: str, splits: int) -> Operation:
        ids = tuple(f"orders:{i}" for i in range(splits))
        return self.operation(
            PutObject(record=self.source(id, name)),
            AssignSplits(fragment=f"{id}", splits=ids),
            PutSplitStates(fragment=f"{id}", states={split: f'{{"offset":{at}}}' for at, split in enumerate(ids)}),
            kind="CREATE SOURCE",
            objects=(name,),
        )

    def lease(self, owner: str = "owner", at: int = 1) -> Lease:
        return Lease(
            owner=owner,
            host="host",
            python_pid=1,
            jvm_pid=2,
            python_start="a",
            jvm_start="b",
            taken_at_ms=at,
            heartbeat_ms=at,
            expires_ms=at + 10_000,
            applied_epoch=0,
        )


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def metastore(warehouse: str) -> Metastore:
    return Metastore.open(warehouse)


@pytest.fixture
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Starts Python code in a process of its own, with its arguments in ``sys.argv``."""

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture
def died_by_kill() -> Callable[[subprocess.Popen[str]], bool]:
    def died(process: subprocess.Popen[str]) -> bool:
        process.communicate(timeout=60)
        return process.returncode == -signal.SIGKILL

    return died
