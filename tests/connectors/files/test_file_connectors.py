"""The file connectors in a folder and in a bucket: the files that they list, and how they divide the unread parts.
Without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.files.reader import dealt
from rw_sql.connectors.files.source import FileConnector
from rw_sql.connectors.ranged import batch_ends, batch_offset
from rw_sql.connectors.registry import connector, names_split
from rw_sql.connectors.snapshots import SnapshotReader
from rw_sql.connectors.support.private_files import SecretText
from rw_sql.connectors.support.records.range_stream import take
from rw_sql.errors import SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.options import SecretReference, source_options
from tests.plan.canned import CannedWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.base import UpstreamSplit

SECRET = "kept to itself"


def files(name: str) -> FileConnector:
    found = connector(name)
    assert isinstance(found, FileConnector)
    assert isinstance(found, SnapshotReader)
    return found


def write(root: Path, path: str, text: str, *, at: int = 1_700_000_000) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (at, at))


def seen(options: dict[str, str], name: str = "posix_fs") -> dict[str, UpstreamSplit]:
    upstream = files(name).look(options)
    assert upstream.error is None
    return dict(upstream.splits)


def test_a_folder_is_seen_by_paths_below_it(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "1\n")
    write(tmp_path, "2026/01/b.csv", "22\n")
    write(tmp_path, "2026/01/c.txt", "3\n")
    for hidden in (".d.csv", "_e.csv", "_delta_log/0.csv", "2026/.tmp/f.csv"):
        write(tmp_path, hidden, "x\n")
    splits = seen({"posix_fs.root": f"{tmp_path}/", "match_pattern": "*.csv"})
    assert {split: (found.start, found.end) for split, found in splits.items()} == {
        "a.csv": (0, 2),
        "2026/01/b.csv": (0, 3),
    }
    assert {found.cluster for found in splits.values()} == {f"posix_fs:{tmp_path}"}
    assert seen({"posix_fs.root": str(tmp_path), "match_pattern": "2026/*/b.*"}).keys() == {"2026/01/b.csv"}


@pytest.mark.parametrize("name", ["posix_fs", "s3", "gcs", "azblob"])
def test_a_pattern_names_a_file_also_after_the_file_is_deleted(name: str) -> None:
    for pattern, path, is_named in (
        ("*.csv", "2026/01/b.csv", True),
        ("*.csv", "b.CSV", False),
        ("2026/*/b.*", "2025/01/b.csv", False),
    ):
        assert names_split(name, {"match_pattern": pattern}, path) == is_named
    assert names_split(name, {}, "junk.tmp")
    assert names_split("kafka", {"topic": "t"}, "u:0")


def test_another_version_of_a_file_is_another_incarnation(tmp_path: Path) -> None:
    options = {"posix_fs.root": str(tmp_path)}
    write(tmp_path, "a.csv", "1\n")
    first = seen(options)["a.csv"].incarnation
    assert seen(options)["a.csv"].incarnation == first
    write(tmp_path, "a.csv", "2\n", at=1_700_000_001)
    second = seen(options)["a.csv"].incarnation
    write(tmp_path, "a.csv", "222\n", at=1_700_000_001)
    assert len({first, second, seen(options)["a.csv"].incarnation}) == 3


def test_a_folder_that_is_removed_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.csv", "1\n")
    write(tmp_path, "b/c.csv", "2\n")
    scan = os.scandir

    def scandir(folder: str) -> object:
        if folder.endswith("/b"):
            raise FileNotFoundError(folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert seen({"posix_fs.root": str(tmp_path)}).keys() == {"a.csv"}


def test_a_name_that_is_not_utf_8_is_the_reason_that_is_given(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "1\n")
    (tmp_path / os.fsdecode(b"caf\xe9.csv")).write_text("2\n")
    options = {"posix_fs.root": str(tmp_path)}
    error = files("posix_fs").look(options).error
    assert error is not None
    assert r"a file whose name is not UTF-8, 'caf\udce9.csv': rename it, or exclude it by match_pattern" in error
    assert seen({**options, "match_pattern": "[!c]*"}).keys() == {"a.csv"}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert files("posix_fs").look({"posix_fs.root": f"{tmp_path}/none"}).error == f"{tmp_path}/none does not exist"


def test_what_was_read_to_its_end_is_finished() -> None:
    kind = files("posix_fs")
    assert kind.is_finished(SplitState(split="a", offset=10, incarnation="10-5"))
    assert not kind.is_finished(SplitState(split="a", offset=9, incarnation="10-5"))
    assert not kind.is_finished(SplitState(split="a", offset=10))


def test_files_that_are_left_are_read_by_their_names() -> None:
    states = [("b.csv", 3, "9-1"), ("a.gz", 0, "5-1"), ("done.csv", 7, "7-1"), ("c.parquet", 0, "4-1")]
    positions = {split: SplitState(split=split, offset=at, incarnation=life) for split, at, life in states}
    left = files("posix_fs").stretches({"posix_fs.root": "/none"}, positions)
    assert [(one.split, one.start, one.end, one.is_whole) for one in left] == [
        ("a.gz", 0, 5, True),
        ("b.csv", 3, 9, False),
        ("c.parquet", 0, 4, True),
    ]


def test_times_are_those_of_the_files(tmp_path: Path) -> None:
    write(tmp_path, "old.csv", "12345\n", at=1_000)
    write(tmp_path, "new.csv", "12345\n", at=2_000)
    options = {"posix_fs.root": str(tmp_path)}
    kind = files("posix_fs")
    assert kind.offsets_at(options, 1_500_000, ("old.csv", "new.csv")) == {"old.csv": 6, "new.csv": 0}
    assert kind.record_times(options, {"old.csv": 0, "gone.csv": 0}) == {"old.csv": 1_000_000}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("posix_fs", {"posix_fs.root": "data"}, "property \"posix_fs.root\" must be an absolute path, not 'data'"),
        ("posix_fs", {}, 'missing property "posix_fs.root"'),
        (
            "posix_fs",
            {"posix_fs.root": "/x", "shared": "false"},
            "property \"shared\" must be true, but is 'false'",
        ),
        (
            "s3",
            {"s3.bucket_name": "b", "s3.region_name": "r", "s3.credentials.access": "a"},
            "s3.credentials.access and s3.credentials.secret must be set together",
        ),
        (
            "gcs",
            {"gcs.bucket_name": "b"},
            'connector "gcs" needs the Python package gcsfs, which is not installed',
        ),
        (
            "azblob",
            {"azblob.container_name": "b"},
            'connector "azblob" needs the Python package adlfs, which is not installed',
        ),
    ],
)
def test_refused_options(name: str, options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("gcsfs", "adlfs") else find(name))
    with pytest.raises(SqlError) as caught:
        files(name).check_options(options)
    assert caught.value.message == message


def test_keys_are_in_no_text() -> None:
    options = {"s3.bucket_name": "b", "s3.region_name": "r", "s3.credentials.access": "a"}
    store = files("s3").store({**options, "s3.credentials.secret": SecretText(SECRET)})
    assert store.arguments["secret"] == SECRET
    assert SECRET not in repr(store)
    with pytest.raises(SqlError) as caught:
        files("gcs").store({"gcs.bucket_name": "b", "gcs.credential": SecretText(SECRET)})
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    """The options of a bucket at an S3 server of this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key=SECRET
    )
    client.create_bucket(Bucket="lake")
    for path, text in (("in/a.csv", "1\n"), ("in/deep/b.csv", "22\n"), ("in/_tmp/c.csv", "3\n"), ("out/d.csv", "4\n")):
        client.put_object(Bucket="lake", Key=path, Body=text.encode())
    yield {
        "s3.bucket_name": "lake",
        "s3.region_name": "us-east-1",
        "s3.endpoint_url": endpoint,
        "s3.credentials.access": "k",
        "s3.credentials.secret": SECRET,
    }
    server.stop()


@pytest.mark.s3
def test_a_bucket_is_seen_by_its_keys(bucket: dict[str, str]) -> None:
    assert seen(bucket, "s3").keys() == {"in/a.csv", "in/deep/b.csv", "out/d.csv"}
    splits = seen({**bucket, "match_pattern": "in/*.csv"}, "s3")
    assert {split: found.end for split, found in splits.items()} == {"in/a.csv": 2, "in/deep/b.csv": 3}
    assert {found.cluster for found in splits.values()} == {f"s3:lake@{bucket['s3.endpoint_url']}"}
    store = files("s3").store(bucket)
    assert store.find("in/a.csv").incarnation == splits["in/a.csv"].incarnation
    assert files("s3").offsets_at(bucket, 0, ("in/a.csv",)) == {"in/a.csv": 0}


@pytest.mark.s3
def test_a_folder_without_files_in_a_bucket_is_no_missing_bucket(
    bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen({**bucket, "match_pattern": "later/*.csv"}, "s3") == {}
    filesystem = files("s3").store(bucket).filesystem()
    list_folder = filesystem._ls

    async def ls(path: str, **options: object) -> object:
        """As if the last file of this folder was moved away after the listing of its parent."""
        if path == "lake/in/deep":
            raise FileNotFoundError(path)
        return await list_folder(path, **options)

    monkeypatch.setattr(filesystem, "_ls", ls)
    assert seen(bucket, "s3").keys() == {"in/a.csv", "out/d.csv"}
    missing = files("s3").look({**bucket, "s3.bucket_name": "none", "match_pattern": "later/*.csv"})
    assert missing.error == "none does not exist"


@pytest.mark.s3
@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "a[1]", "{a,b}", "a*b", "a\\b", "é", "a+b", "'"])
def test_a_key_with_other_characters_is_read(bucket: dict[str, str], name: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=bucket["s3.endpoint_url"],
        region_name="us-east-1",
        aws_access_key_id="k",
        aws_secret_access_key=SECRET,
    )
    client.put_object(Bucket="lake", Key=f"odd/{name}.csv", Body=name.encode())
    splits = seen({**bucket, "match_pattern": "odd/*"}, "s3")
    client.delete_object(Bucket="lake", Key=f"odd/{name}.csv")
    assert splits.keys() == {f"odd/{name}.csv"}


@pytest.mark.s3
def test_a_connection_leads_to_the_bucket(bucket: dict[str, str]) -> None:
    world = CannedWorld()
    world.run(
        "CREATE SECRET key WITH (backend = 'meta') AS 'x'",
        "CREATE CONNECTION lake WITH (type = 's3', s3.region = 'us-east-1', s3.access.key = 'k',"
        f" s3.secret.key = SECRET key, s3.endpoint = '{bucket['s3.endpoint_url']}')",
        "CREATE SOURCE f (id INT) WITH (connector = 's3', connection = lake, s3.bucket_name = 'lake')"
        " FORMAT PLAIN ENCODE CSV",
    )
    source = world.snapshot.find("source", "f")
    assert isinstance(source, SourceRecord)
    planned = source_options(world.snapshot, source)
    options = {key: SECRET if isinstance(value, SecretReference) else value for key, value in planned}
    assert options == bucket
    assert seen(options, "s3").keys() == {"in/a.csv", "in/deep/b.csv", "out/d.csv"}


@pytest.mark.s3
@pytest.mark.long
def test_a_bucket_that_cannot_be_listed(bucket: dict[str, str]) -> None:
    assert files("s3").look({**bucket, "s3.bucket_name": "none"}).error == "none does not exist"
    nobody = files("s3").look({**bucket, "s3.endpoint_url": "http://127.0.0.1:9"}, timeout=1.0).error
    assert nobody is not None
    assert nobody.startswith("lake: ")
    assert SECRET not in nobody


def test_a_batch_takes_what_fits() -> None:
    left = [("a", 0, 10, False), ("b", 0, 10, True), ("c", 0, 4, False), ("d", 2, 4, True)]
    assert take(left, 12) == {"a": (0, 10)}
    assert take(left, 12) == {"b": (0, 10), "c": (0, 2)}
    assert take(left, 1) == {"c": (2, 3)}
    assert take(left, 100, 1) == {"c": (3, 4)}
    assert take(left, 1) == {"d": (2, 4)}
    assert take(left, 1) == {}


def test_an_offset_names_the_ends_of_its_splits() -> None:
    assert batch_ends(batch_offset(3, {"x": (4, 7)})) == {"x": 7}


def test_pieces_are_dealt_by_weight() -> None:
    mega = 1024 * 1024
    assert dealt([], 4, bool) == []
    assert dealt([("a", 0, 10, None), ("b", 0, 10, None)], 4, bool) == [[("a", 0, 10, None), ("b", 0, 10, None)]]
    parts = dealt([("a", 0, 100 * mega, None), ("b", 0, mega, None)], 4, bool)
    assert len(parts) == 4
    joined = [piece for part in parts for piece in part]
    ends: dict[str, int] = {}
    for path, start, end, _ in joined:
        assert ends.get(path, 0) == start
        ends[path] = end
    assert ends == {"a": 100 * mega, "b": mega}
    whole = dealt([("a.gz", 0, 100 * mega, None), ("b", 0, mega, None)], 4, lambda path: not path.endswith(".gz"))
    assert [piece for part in whole for piece in part] == [("a.gz", 0, 100 * mega, None), ("b", 0, mega, None)]
