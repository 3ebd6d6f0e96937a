"""Object stores: the URIs of a warehouse that are refused, and a store that does not answer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import botocore.exceptions
import pyarrow as pa
import pytest
import s3fs
from deltalake import DeltaTable, Schema
from moto.server import ThreadedMotoServer

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.errors import FILE_UNREADABLE, INVALID_PARAMETER, INVALID_PROPERTY, SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.table import StoredTable, create_table, is_table
from rw_sql.object_stores import client_errors, local_location, one_line, unfit_part
from rw_sql.runtime.support.store_environment import complete_environment
from rw_sql.runtime.support.text_files import read_text_file
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("s3://bucket/a%20b", "%20, which Delta reads as one character"),
        ("s3://bucket/a#b", "the character '#'"),
        ("s3a://bucket/a?b", "the character '?'"),
        ("s3://bucket/team[ab]/wh", "the character '['"),
        ("s3://bucket/a*", "the character '*'"),
        ("s3://bucket/{a,b}", "the character '{'"),
        ("gs://bucket/a\tb", "the character '\\t'"),
        ("s3://bucket/a/../b", "the folder name '..'"),
        ("s3://bucket/a//b", "the folder name ''"),
        ("/srv/a%20b", "%20, which Delta reads as one character"),
        ("/srv/[team]/wh", "the character '['"),
        ("/srv/a^b", "the character '^'"),
        ("/srv/a|b", "the character '|'"),
        ("/srv/a\\b", "the character '\\'"),
        ("/srv/a\tb", "the character '\\t'"),
    ],
)
def test_a_warehouse_that_the_libraries_would_look_for_in_different_places_is_refused(uri: str, part: str) -> None:
    openers: tuple[Callable[[str], object], ...] = (Warehouse.at, Metastore.open, Metastore.peek)
    for opened in openers:
        with pytest.raises(SqlError, match="cannot be used") as caught:
            opened(uri)
        assert caught.value.code == INVALID_PARAMETER.code
        assert f"it contains {part}" in caught.value.message


@pytest.mark.parametrize("name", ["a b", "é", "a+b", "100%", "a=b", "a'b", "a:b", "v1.0"])
def test_other_names_are_accepted(name: str) -> None:
    assert unfit_part(f"s3://bucket/{name}/wh/") is None


def test_a_location_of_this_machine_is_a_path_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a#b"
    for uri in (f"file://{folder}", f"file:{folder}", f"file://localhost{folder}", str(folder)):
        warehouse = Warehouse.at(uri)
        assert (warehouse.uri, warehouse.is_local) == (str(folder), True)
        Metastore.open(uri)
    assert [path.name for path in tmp_path.iterdir()] == ["a#b"]
    assert local_location("s3://bucket/a") == "s3://bucket/a"
    assert local_location("file:relative") == "file:relative"


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A warehouse in a store that does not answer."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Without listening, it refuses connections.
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        given = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "eu-central-1",
            "AWS_MAX_ATTEMPTS": "1",
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield "s3://bucket/warehouse"
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_store_that_does_not_answer_is_an_operating_system_error(no_store: str) -> None:
    warehouse = Warehouse.at(no_store)
    path = f"{warehouse.uri}/checkpoints/downtime.json"
    actions: tuple[Callable[[], object], ...] = (
        lambda: warehouse.read_text(path),
        lambda: warehouse.write_text(path, "[]"),
        lambda: warehouse.exists(path),
        lambda: warehouse.list_names(warehouse.uri),
        lambda: warehouse.older_files(warehouse.uri, 0.0),
        lambda: warehouse.remove(path),
        lambda: warehouse.files.open(path),
    )
    for act in actions:
        with pytest.raises(OSError, match="Could not connect") as caught:
            act()
        assert isinstance(caught.value.__cause__, botocore.exceptions.BotoCoreError)


@pytest.fixture
def store_of_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a table in a store that a thread of this process serves: it answers only while threads may run."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }
    complete_environment("s3://lake", given)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    boto3.client("s3").create_bucket(Bucket="lake")
    yield "s3://lake/warehouse/rw_catalog/t"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.mark.s3
def test_the_threads_of_a_process_run_while_it_reads_a_table(store_of_this_process: str) -> None:
    uri = store_of_this_process
    columns = pa.schema([("seq", pa.int64()), ("name", pa.string())])
    assert not is_table(uri)
    for _ in range(2):
        create_table(uri, Schema.from_arrow(columns), {})
    assert is_table(uri)
    writer, reader = StoredTable(uri), StoredTable(uri)
    for seq in (1, 2):
        writer.append(pa.table({"seq": [seq], "name": [f"row {seq}"]}, schema=columns))
        assert reader.read_new().rows.to_pylist() == [{"seq": seq, "name": f"row {seq}"}]
    assert sorted(StoredTable(uri).read(["seq"])["seq"].to_pylist()) == [1, 2]


def test_the_reason_of_a_failure_is_in_its_line(no_store: str) -> None:
    with pytest.raises(OSError, match="Generic S3 error") as caught:
        DeltaTable(no_store, storage_options={"max_retries": "0", "retry_timeout": "1s", "allow_http": "true"})
    line = one_line(caught.value)
    assert line.startswith("Kernel error -> Generic S3 error: Error performing GET http://127.0.0.1:")
    assert line.endswith("tcp connect error: Connection refused (os error 111)")
    assert "/warehouse/_delta_log/_last_checkpoint - HTTP error" in line


def test_a_file_in_a_store_that_does_not_answer_cannot_be_read(no_store: str) -> None:
    files = CheckpointFiles.at(f"{no_store}/checkpoint")
    actions: tuple[Callable[[], object], ...] = (
        lambda: files.stamps("offsets"),
        lambda: files.read("metadata"),
        lambda: files.write("offsets/0", "v1"),
        lambda: read_text_file(f"{no_store}/schema.json"),
    )
    for act in actions:
        with pytest.raises(SqlError, match="could not connect") as caught:
            act()
        assert caught.value.code == FILE_UNREADABLE.code


def test_a_fault_of_the_program_stays_what_it_is() -> None:
    with pytest.raises(KeyError), client_errors():
        raise KeyError("no such option")
    with pytest.raises(FileNotFoundError), client_errors():
        raise FileNotFoundError("gone")
    with pytest.raises(OSError, match="NoCredentials"), client_errors():
        raise type("NoCredentialsError", (botocore.exceptions.BotoCoreError,), {"fmt": ""})()


def test_a_table_is_not_read_from_another_place_than_its_path() -> None:
    from rw_sql.connectors.delta.source import DeltaConnector

    with pytest.raises(SqlError, match="would use different places"):
        DeltaConnector().check_options({"delta.path": "s3://bucket/a%20b"})
    for path in ("/data/a b", "file:///data/a b", "s3://bucket/a/"):
        DeltaConnector().check_options({"delta.path": path})


def test_a_table_is_not_written_to_another_place_than_its_location() -> None:
    from rw_sql.connectors.delta.sink import DeltaSink

    for location in ("s3://bucket/a#b", "file:///data/a?b"):
        with pytest.raises(SqlError, match="would use different places") as caught:
            DeltaSink().check_options({"location": location, "type": "append-only"})
        assert caught.value.code == INVALID_PROPERTY.code
    for location in ("/data/a#b", "file:///data/a b", "s3://bucket/a/"):
        DeltaSink().check_options({"location": location, "type": "append-only"})
