"""Why a warehouse cannot be written: the reason in an error, and the reason that is visible without a write."""

from __future__ import annotations

import errno
import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore
from rw_sql.runtime.support import write_obstacles
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.support.write_obstacles import obstacle_of, refusal, try_to_write, visible_obstacle
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from tests.support.s3_store import S3Store


@dataclass(frozen=True)
class FileSystem:
    """What statvfs tells about a file system."""

    f_flag: int = 0
    f_bavail: int = 1 << 20
    f_bfree: int = 1 << 20
    f_frsize: int = 4096
    f_files: int = 1000
    f_favail: int = 10
    f_ffree: int = 10


SOUND, READ_ONLY = FileSystem(), FileSystem(f_flag=os.ST_RDONLY)
FULL, NO_INODES = FileSystem(f_bavail=0, f_bfree=0), FileSystem(f_favail=0, f_ffree=0)
UNCOUNTED = FileSystem(f_files=0, f_favail=0, f_ffree=0)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.lease()
    return Warehouse.at(written.uri)


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (SOUND, None),
        (UNCOUNTED, None),
        (READ_ONLY, "the file system of the warehouse is read-only"),
        (FULL, "the file system of the warehouse is full"),
        (NO_INODES, "the file system of the warehouse is full"),
    ],
)
def test_flags_and_free_space_show_an_obstacle(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, told: FileSystem, problem: str | None
) -> None:
    before = sorted(Path(warehouse.uri).rglob("*"))
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    found = visible_obstacle(warehouse, os.getpid())
    assert (None if found is None else found.problem) == problem
    assert sorted(Path(warehouse.uri).rglob("*")) == before


def test_the_mounts_of_another_machine_do_not_count(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: READ_ONLY)
    assert visible_obstacle(warehouse, is_here=False) is None
    monkeypatch.setattr(os, "statvfs", lambda _: FULL)
    assert visible_obstacle(warehouse, is_here=False) is not None


def test_the_user_of_the_process_counts_and_not_the_one_who_looks(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.geteuid() + 4711
    monkeypatch.setattr(write_obstacles, "credentials_of", lambda _: (other, frozenset({other})))
    folder = Path(warehouse.uri) / "rw_catalog" / "runtime_lease" / "_delta_log"
    found = visible_obstacle(warehouse, 1)
    assert found is not None
    assert found.problem == f"user {other} may not write in the warehouse's folder"
    assert found.remedy == f"give {other} the right to read and write it (chown -R {other} {warehouse.uri})"
    assert visible_obstacle(warehouse) is None  # no process is to write it
    for path in (folder, folder.parent, *(Path(warehouse.uri) / name for name in ("data", "checkpoints"))):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    (Path(warehouse.uri) / "rw_catalog" / "runtime_job_status" / "_delta_log").chmod(0o777)
    assert visible_obstacle(warehouse, 1) is None


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM])
def test_an_error_of_a_local_write_names_the_obstacle_and_what_to_type(number: int, tmp_path: Path) -> None:
    found = obstacle_of(OSError(number, os.strerror(number), "x"), str(tmp_path))
    assert found is not None
    typed = {
        errno.EROFS: "mount -o remount,rw ",
        errno.ENOSPC: f"df -h {tmp_path}",
        errno.EDQUOT: "raise the quota",
        errno.EACCES: f"chown -R {getpass.getuser()} {tmp_path}",
        errno.EPERM: f"chown -R {getpass.getuser()} {tmp_path}",
    }
    assert typed[number] in found.remedy


def test_what_passes_by_itself_is_no_obstacle(tmp_path: Path) -> None:
    for error in (ConnectionResetError(errno.ECONNRESET, "reset"), FileNotFoundError(errno.ENOENT, "no"), ValueError()):
        assert obstacle_of(error, str(tmp_path)) is None
    assert obstacle_of(OSError(errno.ECONNREFUSED, "refused"), "s3://bucket/w") is None
    # A local warehouse has no keys: an upstream in an object store has refused this.
    assert obstacle_of(OSError("403 Forbidden: AccessDenied"), str(tmp_path)) is None


def test_a_write_is_tried_without_a_trace(warehouse: Warehouse) -> None:
    before = sorted(Path(warehouse.uri).rglob("*"))
    assert try_to_write(warehouse) is None
    assert sorted(Path(warehouse.uri).rglob("*")) == before
    assert isinstance(try_to_write(Warehouse.at(f"{warehouse.uri}/missing")), FileNotFoundError)


def test_a_failed_write_of_a_text_leaves_no_file(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"{warehouse.uri}/checkpoints"
    warehouse.write_text(f"{folder}/a.json", "1")

    def no_space(path: str, *_: object, **__: object) -> None:
        Path(path).touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(warehouse.files), "write_text", lambda _, *given, **named: no_space(*given, **named))
    with pytest.raises(OSError, match="No space left"):
        warehouse.write_text(f"{folder}/a.json", "2")
    assert warehouse.list_names(folder) == ["a.json"]
    assert warehouse.read_text(f"{folder}/a.json") == "1"


@pytest.mark.s3
def test_a_store_that_refuses_writes_is_found_without_changing_it(s3_store: S3Store) -> None:
    with s3_store.reached_by_the_environment():
        warehouse = Warehouse.at(s3_store.warehouse())
        metastore = Metastore.open(warehouse.uri)
        log = f"{warehouse.uri}/rw_catalog/runtime_lease/_delta_log"
        metastore.jobs.lease()
        before = {name: warehouse.read_text(f"{log}/{name}") for name in warehouse.list_names(log)}
        assert refusal(warehouse) is None
        with s3_store.refusing_writes():
            found = refusal(warehouse)
            assert found is not None
            assert obstacle_of(found, warehouse.uri) is write_obstacles._REFUSES
            with pytest.raises(Exception, match=r"403|AccessDenied|privileges") as caught:
                metastore.jobs.claim_run("a", 1, "me")
            assert obstacle_of(caught.value, warehouse.uri) is write_obstacles._REFUSES
        assert {name: warehouse.read_text(f"{log}/{name}") for name in warehouse.list_names(log)} == before
        assert refusal(warehouse) is None


@pytest.mark.parametrize(("number", "is_refused"), [(errno.ENOSYS, False), (errno.EACCES, True)])
def test_a_store_without_conditional_writes_does_not_refuse_writes(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, number: int, is_refused: bool
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, "of the store")

    monkeypatch.setattr(Warehouse, "write_new_text", refused)
    assert (refusal(warehouse) is not None) is is_refused


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Failed to parse parquet: External: Generic LocalFileSystem error: (os error 30)", "read-only"),
        ("Kernel error: Arrow error: Generic LocalFileSystem error: (os error 28)", "full"),
        ("java.io.IOException: No space left on device", "full"),
        ("java.io.FileNotFoundException: /w/data/7/a.parquet (Read-only file system)", "read-only"),
        ("java.nio.file.AccessDeniedException: /w: Permission denied", "may not write"),
    ],
)
def test_the_texts_of_delta_rs_and_of_the_jvm_name_an_obstacle(text: str, problem: str) -> None:
    obstacle = obstacle_of(Exception(text), "/w")
    assert obstacle is not None
    assert problem in obstacle.problem
