"""Objects with a Content-Encoding, which the clients of Google Cloud Storage and Azure decompress while reading."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.files import rows, store
from rw_sql.connectors.files.store import FileStore, FoundFile
from rw_sql.runtime.support.failures import cause_line
from tests.connectors.files.test_file_reader import read

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Place:
    """A store. Its client reports the encoding of an object under the key ``shown``."""

    protocol: str
    shown: str


TEXT = b'{"id": 1}\n' * 100
STORED = gzip.compress(TEXT)
GS, AZURE, S3 = (
    Place(protocol=protocol, shown=shown)
    for protocol, shown in (("gs", "contentEncoding"), ("abfs", "content_settings"), ("s3", "ContentEncoding"))
)


@dataclass
class Settings:
    """The properties of a blob as adlfs reports them."""

    content_encoding: str | None


def info(shown: str, encoding: str | None) -> dict[str, Any]:
    """What the client reports for an object with this encoding."""
    return {
        "size": len(STORED),
        "etag": "one",
        shown: Settings(content_encoding=encoding) if shown == "content_settings" else encoding,
    }


class Bucket:
    """A bucket with one object. Its client decodes one encoding, except that of S3, which decodes none."""

    def __init__(self, shown: str, encoding: str | None, decoded: str = "gzip") -> None:
        self._info = info(shown, encoding)
        self._data = STORED if encoding != decoded or shown == "ContentEncoding" else TEXT

    def info(self, path: str) -> dict[str, Any]:
        return self._info

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._data

    def open(self, path: str, mode: str) -> Any:
        raise AssertionError("a file that cannot be read is not opened")


class Undecodable(Bucket):
    """A bucket whose client cannot decode the object."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        raise RuntimeError("Can not decode content-encoding: gzip")


def records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Place, bucket: Bucket, name: str, **config: Any
) -> list[dict[str, Any]]:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_bytes(STORED)
    monkeypatch.setattr(FileStore, "filesystem", lambda self: bucket)
    given = {"protocol": at.protocol, "root": "lake", "arguments": {}}
    return read(folder, config.pop("encode", "JSON"), store=given, **config)


@pytest.mark.parametrize("life", [None, f"{len(STORED)}-one"])
@pytest.mark.parametrize(
    ("at", "name", "config", "command"),
    [
        (GS, "a b.json.gz", {}, "gcloud storage objects update 'gs://lake/a b.json.gz' --clear-content-encoding"),
        (
            GS,
            "a.json",
            {"compression": "gzip"},
            "gcloud storage objects update gs://lake/a.json --clear-content-encoding",
        ),
        (
            AZURE,
            "a.json.gz",
            {},
            "az storage blob update --container-name lake --name a.json.gz --clear-content-settings true "
            "--content-type application/octet-stream",
        ),
    ],
)
def test_a_file_that_the_client_decompresses_is_refused_with_the_command_that_removes_its_encoding(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: Place,
    name: str,
    config: dict[str, str],
    command: str,
    life: str | None,
) -> None:
    advice = rf"remove the encoding \({command}\); if the content is compressed twice, upload the file again instead$"
    with pytest.raises(OSError, match=rf"^{name}: it is stored with Content-Encoding: gzip, .*: {advice}"):
        records(tmp_path, monkeypatch, at, Bucket(at.shown, "gzip"), name, life=life, **config)


@pytest.mark.parametrize("config", [{}, {"compression": ""}])
@pytest.mark.parametrize(("at", "encoding"), [(GS, "gzip"), (GS, "zstd"), (AZURE, "gzip")])
def test_a_file_that_would_be_read_without_decompression_keeps_its_encoding_until_the_source_decompresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Place, encoding: str, config: dict[str, str]
) -> None:
    advice = (
        "upload the file again without this encoding; if all files of the source have this encoding, first set "
        f"compression_format = '{encoding}', and then remove the encoding$"
    )
    with pytest.raises(OSError, match=rf"so offsets cannot count its bytes: {advice}"):
        records(tmp_path, monkeypatch, at, Bucket(at.shown, encoding, encoding), "a.json", **config)


@pytest.mark.parametrize(
    ("encoding", "name", "config"),
    [
        ("gzip", "a.json.zst", {}),
        ("gzip", "a.json.gz", {"compression": "bz2"}),
        ("zstd", "a.json.gz", {}),
    ],
)
def test_a_file_with_another_compression_than_its_encoding_must_be_uploaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, name: str, config: dict[str, str]
) -> None:
    with pytest.raises(OSError, match=r": upload the file again without this encoding$"):
        records(tmp_path, monkeypatch, GS, Bucket(GS.shown, encoding, encoding), name, **config)


@pytest.mark.parametrize("length", [100, 500, 1024])
@pytest.mark.parametrize("at", [GS, AZURE])
def test_the_reason_of_a_stall_contains_the_whole_advice_for_a_file_with_a_long_name(at: Place, length: int) -> None:
    name = "a" * (length - len(".json.gz")) + ".json.gz"
    found = FoundFile(path=name, size=1, incarnation="1-x", modified_ms=None, content_encoding="gzip")
    place = FileStore(protocol=at.protocol, root="b" * 222)
    fault = store.fault_of_encoding(place, found, "gzip", is_lines=True)
    assert fault is not None
    assert cause_line(f"OSError: {fault}") == f"OSError: {fault}"
    assert fault.startswith(f"{name}: ")
    assert fault.count(name) == (2 if length <= 500 else 1)
    assert fault.count("…") == (0 if length <= 500 else 1)


@pytest.mark.parametrize("life", [None, f"{len(STORED)}-one"])
def test_a_large_file_that_the_client_decompresses_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str | None
) -> None:
    monkeypatch.setattr(rows, "CHUNK", 1)
    with pytest.raises(OSError, match=r"^a.json: it is stored with Content-Encoding: gzip"):
        records(tmp_path, monkeypatch, GS, Bucket(GS.shown, "gzip"), "a.json", life=life)


def test_a_file_whose_client_cannot_decode_it_is_refused_for_its_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Undecodable(GS.shown, "gzip")
    with pytest.raises(OSError, match=r"^a.json: it is stored with Content-Encoding: gzip"):
        records(tmp_path, monkeypatch, GS, bucket, "a.json", life=f"{len(STORED)}-one")


def test_a_client_that_fails_for_another_reason_says_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="Can not decode"):
        records(tmp_path, monkeypatch, GS, Undecodable(GS.shown, None), "a.json", life=f"{len(STORED)}-one")


@pytest.mark.parametrize(("encoding", "encode"), [("gzip", "PARQUET"), ("deflate", "JSON"), ("br", "JSON")])
def test_a_file_that_rw_sql_cannot_decompress_either_must_be_uploaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, encode: str
) -> None:
    bucket = Bucket(GS.shown, encoding, encoding)
    with pytest.raises(OSError, match=rf"Content-Encoding: {encoding}, .*: upload the file again without"):
        records(tmp_path, monkeypatch, GS, bucket, "a", encode=encode)


@pytest.mark.parametrize(("at", "encoding"), [(GS, None), (GS, "identity"), (AZURE, None), (S3, "gzip")])
def test_a_file_that_the_client_leaves_as_it_is_stored_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Place, encoding: str | None
) -> None:
    assert len(records(tmp_path, monkeypatch, at, Bucket(at.shown, encoding), "a.json.gz")) == 100


@pytest.mark.parametrize(
    ("shown", "given", "kept"),
    [
        ("contentEncoding", "GZIP", "gzip"),
        ("contentEncoding", "zstd", "zstd"),
        ("contentEncoding", "utf-8", None),
        ("content_settings", "deflate", "deflate"),
        ("content_settings", "zstd", None),  # Azure's client does not decode it
        ("ContentEncoding", "gzip", None),
    ],
)
def test_only_encodings_that_the_client_decodes_are_kept(shown: str, given: str, kept: str | None) -> None:
    assert store._remote_file("f", info(shown, given)).content_encoding == kept
