"""A warehouse's files in an object store: writes of another process are visible at once, and no listing is cached."""

from __future__ import annotations

import ast
import os
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest
from botocore.exceptions import ClientError
from fsspec.implementations.memory import MemoryFileSystem
from s3fs.errors import translate_boto_error

import rw_sql
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.connectors.delta.commits import read_commit
from rw_sql.metastore import Metastore
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.lease import renewed, try_take
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.warehouse import Warehouse, _written_at
from tests.support.s3_store import BUCKET, S3Store, store_of_the_environment
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENERS = {"url_to_fs", "open", "filesystem", "get_mapper", "open_files"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """A store that this process reaches by its environment."""
    with store_of_the_environment(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture
def warehouse(store: S3Store) -> Warehouse:
    return Warehouse.at(store.warehouse())


def put(store: S3Store, uri: str, text: str) -> None:
    """Writes a file as another process does."""
    store.client.put_object(Bucket=BUCKET, Key=uri.removeprefix(f"s3://{BUCKET}/"), Body=text.encode())


@pytest.mark.s3
@pytest.mark.long
def test_what_another_process_writes_is_seen_at_once(store: S3Store, warehouse: Warehouse) -> None:
    log = f"{warehouse.uri}/t/_delta_log"
    for version in range(3):
        assert latest_version(warehouse, f"{warehouse.uri}/t") == version - 1
        assert not warehouse.exists(f"{log}/{version:020d}.json")
        assert read_commit(f"{warehouse.uri}/t", version) is None
        put(store, f"{log}/{version:020d}.json", "{}\n")
        assert warehouse.read_text(f"{log}/{version:020d}.json") == "{}\n"
        assert read_commit(f"{warehouse.uri}/t", version) is not None
        assert len(warehouse.list_names(log)) == version + 1
    files = CheckpointFiles.at(f"{warehouse.uri}/c")
    for batch in range(3):
        put(store, f"{warehouse.uri}/c/offsets/{batch}", "v1")
        assert files.batches("offsets") == list(range(batch + 1))


@pytest.mark.s3
@pytest.mark.long
def test_a_file_that_is_overwritten_is_read_as_it_is_now(store: S3Store, warehouse: Warehouse) -> None:
    path = f"{warehouse.uri}/ranges.json"
    for text in ("one", "another", "a third"):
        warehouse.list_names(warehouse.uri)
        put(store, path, text)
        assert warehouse.read_text(path) == text
        assert CheckpointFiles.at(warehouse.uri).read("ranges.json") == text
    warehouse.write_text(path, "ours")
    assert warehouse.older_files(warehouse.uri, -60.0) == ["ranges.json"]
    assert warehouse.read_text(path) == "ours"
    warehouse.remove(path)
    with pytest.raises(FileNotFoundError):
        warehouse.read_text(path)


def check_new_files(warehouse: Warehouse) -> None:
    path = f"{warehouse.uri}/new/a.json"
    warehouse.make_folders(f"{warehouse.uri}/new")
    warehouse.write_new_text(path, "first", is_durable=True)
    with pytest.raises(FileExistsError):
        warehouse.write_new_text(path, "second", is_durable=True)
    assert warehouse.read_text(path) == "first"
    assert warehouse.list_names(f"{warehouse.uri}/new") == ["a.json"]


def test_a_new_file_does_not_replace_another(tmp_path: Path) -> None:
    check_new_files(Warehouse.at(str(tmp_path)))


@pytest.mark.s3
def test_a_new_object_does_not_replace_another(store: S3Store, warehouse: Warehouse) -> None:
    before = len(store.requests())
    check_new_files(warehouse)
    puts = [request for request in store.requests()[before:] if request.method == "PUT"]
    assert [(request.if_none_match, request.status) for request in puts] == [("*", 200), ("*", 412)]


class ResourceExistsError(Exception):
    """The error of Azure's client, which fsspec does not convert."""


ResourceExistsError.__module__ = "azure.core.exceptions"


def of_s3(code: str, message: str) -> BaseException:
    """The error of s3fs for a response of a store."""
    response = {"Error": {"Code": code, "Message": message}}
    error: BaseException = translate_boto_error(ClientError(response, "PutObject"))
    return error


@pytest.mark.parametrize(
    ("error", "exists"),
    [
        (of_s3("PreconditionFailed", "At least one of the pre-conditions you specified did not hold"), True),
        (of_s3("PreconditionFailed", ""), True),
        (of_s3("412", "Precondition Failed"), True),
        (ResourceExistsError("The specified blob already exists.\nRequestId:1\nErrorCode:BlobAlreadyExists"), True),
        (FileExistsError("w/a"), True),
        (of_s3("NotImplemented", "A header you provided implies functionality that is not implemented"), False),
        (of_s3("ConditionalRequestConflict", "Conflict"), False),
        (of_s3("AccessDenied", "Access Denied"), False),
    ],
)
def test_the_response_that_an_object_exists_is_recognized_in_every_store(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, exists: bool
) -> None:
    def pipe_file(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the texts are those of the stores
        Warehouse.at("memory://new/w").write_new_text("memory://new/w/a", "text")
    assert isinstance(caught.value, FileExistsError) is exists


@pytest.mark.s3
def test_a_file_is_looked_for_with_one_request(store: S3Store, warehouse: Warehouse) -> None:
    put(store, f"{warehouse.uri}/there", "content")
    before = len(store.requests())
    assert warehouse.has_file(f"{warehouse.uri}/there")
    assert not warehouse.has_file(f"{warehouse.uri}/missing")
    assert [request.status for request in store.requests()[before:]] == [206, 404]


@pytest.mark.s3
def test_the_mark_of_an_empty_folder_is_no_file(store: S3Store, warehouse: Warehouse) -> None:
    folder = f"{warehouse.uri}/checkpoints/mv-1/1/commits"
    put(store, f"{folder}/", "")
    assert warehouse.list_names(folder) == []
    assert warehouse.older_files(f"{warehouse.uri}/checkpoints", -60.0) == []
    files = CheckpointFiles.at(f"{warehouse.uri}/checkpoints/mv-1/1")
    assert (files.batches("commits"), files.stamps("commits")) == ([], {})
    put(store, f"{folder}/0", "v1")
    assert warehouse.list_names(folder) == ["0"]
    assert list(files.stamps("commits")) == ["0"]


def test_every_use_of_fsspec_goes_without_cached_listings() -> None:
    found = []
    for path in sorted(Path(rw_sql.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "fsspec" in text else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if "fsspec" in ast.unparse(node.func) and node.func.attr in OPENERS:
                found.append((path.name, "use_listings_cache" in ast.unparse(node)))
    assert len(found) >= 4
    assert [name for name, is_fresh in found if not is_fresh] == []


@pytest.mark.s3
def test_an_instance_of_ours_is_not_shared_with_one_that_caches(warehouse: Warehouse) -> None:
    shared = fsspec.core.url_to_fs(warehouse.uri)[0]
    assert shared is not warehouse.files
    assert not warehouse.files.dircache.use_listings_cache


@pytest.mark.s3
@pytest.mark.long
def test_a_heartbeat_does_not_wait_for_the_upkeep_of_its_table(
    store: S3Store, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rw_sql.metastore.table.UPKEEP_EVERY", 10)
    facts = Metastore.open(warehouse.uri).jobs
    lease = try_take(facts, "me", os.getpid(), is_local=False)
    assert lease is not None

    def renew() -> None:
        nonlocal lease
        assert lease is not None
        lease = renewed(lease, lease.applied_epoch + 1)
        # On a thread, so that a call that waits for the store fails the test instead of blocking it.
        prepare(partial(facts.renew_lease, lease), "beat").result(LAST_RESORT_SECONDS / 10)

    def is_tended() -> bool:
        return any(thread.name == "rw_sql-upkeep" for thread in threading.enumerate())

    with store.holding(r"/runtime_lease/_delta_log/_last_checkpoint$") as is_waiting:
        for _ in range(10):
            renew()
            # One that commits while it folds would win.
            wait_until(lambda: is_waiting() or not is_tended(), "upkeep is at its last step")
        assert is_waiting()
        for _ in range(3):
            renew()
        assert facts.lease() == lease
    wait_until(lambda: not is_tended(), "upkeep has ended")
    before = len(store.requests())
    for _ in range(10):
        renew()
        wait_until(lambda: not is_tended(), "upkeep has ended")
    # It caches the rows that it folds: a heartbeat reads no more than the one row that its own upkeep has left.
    paths = [request.path for request in store.requests()[before:] if request.method == "GET"]
    assert len([path for path in paths if "/runtime_lease/part-" in path]) < 10
    assert any(path.endswith("_last_checkpoint") for path in paths)
    assert Metastore.open(warehouse.uri).jobs.lease() == lease


@pytest.mark.parametrize(
    "told",
    [
        {"mtime": 1_700_000_000.0},
        {"mtime": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)},
        {"LastModified": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)},  # s3fs
        {"last_modified": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)},  # adlfs
        {"updated": "2023-11-14T22:13:20.000Z"},  # gcsfs
    ],
)
def test_the_time_of_writing_of_every_store(told: dict[str, object]) -> None:
    assert _written_at(told) == 1_700_000_000
