"""Where a soak keeps its warehouse, and which Spark runs its jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import s3fs

from tests.integration.cluster import Cluster
from tests.support.s3_store import S3Store, store_of_the_environment
from tests.support.small_disk import Disk, why_no_disk
from tests.support.spark_settings import FEW_ROWS

WORKERS = ("first", "second")
_DISK_SIZE = "8g"
_LOCAL = ("--master", "local[2]")
_EXECUTORS = (
    ("spark.driver.bindAddress", "127.0.0.1"),
    ("spark.driver.host", "127.0.0.1"),
    ("spark.executor.memory", "512m"),
    ("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
)


class WarehouseKind(StrEnum):
    """The kinds of places for a warehouse."""

    DISK = "disk"
    S3 = "s3"


class MasterKind(StrEnum):
    """The kinds of Spark masters."""

    LOCAL = "local"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The warehouse, what serves it, and what this machine lacks.

    ``serve_words`` are options of ``rw-sql serve``, and ``settings`` those of a session that only sends statements.
    ``lacks`` has the reason why this machine cannot mount a disk; it is empty if it can.
    """

    warehouse: str
    serve_words: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=lambda: FEW_ROWS)
    disk: Disk | None = None
    store: S3Store | None = None
    cluster: Cluster | None = None
    lacks: str = ""

    @property
    def is_slow(self) -> bool:
        """True if a statement may take longer than the usual time limit."""
        return self.store is not None or self.cluster is not None

    def keep(self, folder: Path) -> None:
        """Copies the warehouse, as far as it can be read, into a folder that outlives the place."""
        with suppress(OSError):
            if self.store is not None:
                s3fs.S3FileSystem().get(self.warehouse, str(folder), recursive=True)
            elif self.disk is not None:
                shutil.copytree(self.warehouse, folder)


@contextmanager
def open_place(folder: Path, warehouse: WarehouseKind, master: MasterKind) -> Iterator[Place]:
    """The place of a soak, with its servers, until the end of the context."""
    with ExitStack() as stack:
        disk = store = cluster = None
        settings, lacks = dict(FEW_ROWS), ""
        if warehouse is WarehouseKind.S3:
            (folder / "store").mkdir()
            store = stack.enter_context(store_of_the_environment(folder / "store"))
            settings |= store.spark_settings()
            at = store.warehouse()
        else:
            lacks = why_no_disk()
            if not lacks:
                disk = Disk(folder / "disk", _DISK_SIZE)
                stack.callback(disk.end)
            at = str((folder / "disk" if disk else folder) / "warehouse")
        words: Sequence[str] = _LOCAL
        if master is MasterKind.CLUSTER:
            (folder / "cluster").mkdir()
            # Its workers pass the environment, and so the keys of the store, to their executors.
            cluster = stack.enter_context(Cluster(folder / "cluster"))
            for name in WORKERS:
                cluster.add_worker(name)
            cluster.wait_for_workers(*WORKERS)
            words = (
                "--master",
                cluster.master,
                *(w for key, value in _EXECUTORS for w in ("--conf", f"{key}={value}")),
            )
        yield Place(
            warehouse=at,
            serve_words=words,
            settings=settings,
            disk=disk,
            store=store,
            cluster=cluster,
            lacks=lacks,
        )
