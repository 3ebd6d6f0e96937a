"""Compressed files: every part of them is read, and a file that is cut off or of another kind is an error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.connectors.files.compression import ENDINGS, CompressedError, compression_of, decompressed
from rw_sql.connectors.spec import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable


def snappy(data: bytes) -> bytes:
    """A stream in the framing format: a compressed chunk, an uncompressed one, and padding."""
    half = len(data) // 2
    block = b"crc " + pa.compress(data[:half], codec="snappy", asbytes=True)
    chunks = ((0, block), (1, b"crc " + data[half:]), (0xFE, b"padding"))
    return b"\xff\x06\x00\x00sNaPpY" + b"".join(
        bytes([kind]) + len(chunk).to_bytes(3, "little") + chunk for kind, chunk in chunks
    )


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": partial(pa.compress, codec="zstd", asbytes=True),
    "lz4": partial(pa.compress, codec="lz4", asbytes=True),
    "snappy": snappy,
}


def zipped(members: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return made.getvalue()


def read(data: bytes, name: str) -> bytes:
    file = io.BytesIO(data)
    file.read(1)
    with decompressed(file, name) as found:
        text = found.read()
    assert not file.closed
    return text


@pytest.mark.parametrize("name", PACKED)
def test_every_part_of_a_file_is_read(name: str) -> None:
    parts = (b"a" * 1000, b"b" * 70_000, b"c")
    assert read(b"".join(map(PACKED[name], parts)), name) == b"".join(parts)


@pytest.mark.parametrize("name", PACKED)
def test_a_file_that_is_cut_off_is_an_error(name: str) -> None:
    whole = PACKED[name](b"a" * 1000) + PACKED[name](bytes(range(256)) * 9)
    with pytest.raises(CompressedError):
        read(whole[:-3], name)
    with pytest.raises(CompressedError):
        read(b"hello, world; hello, world", name)


def test_a_chunk_of_snappy_cannot_claim_any_length() -> None:
    begin = b"\xff\x06\x00\x00sNaPpY"
    block = b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff\x0f" + b"\x00a"  # 4 GiB, says its first number.
    with pytest.raises(CompressedError, match="a chunk of 4294967295 bytes, and the format allows 65536"):
        read(begin + b"\x00" + len(block).to_bytes(3, "little") + block, "snappy")


def test_an_archive_of_one_file_is_read() -> None:
    hidden = {"__MACOSX/._a.csv": "x", "folder/": "", "folder/.DS_Store": "y"}
    assert read(zipped({**hidden, "folder/a.csv": "1\n"}), "zip") == b"1\n"
    with pytest.raises(CompressedError, match="the archive has 2 files, and only an archive of one file can be read"):
        read(zipped({"a.csv": "1\n", "folder/b.csv": "2\n"}), "zip")
    with pytest.raises(CompressedError, match="it cannot be decompressed as zip"):
        read(zipped({"a.csv": "1\n"})[:20], "zip")


@pytest.mark.parametrize("name", [*PACKED, "zip"])
def test_an_error_of_the_store_stays_one(name: str) -> None:
    class Away(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("the store is away")

    with pytest.raises(ConnectionResetError):
        decompressed(Away(b"x" * 99), name).read()


def test_names_and_the_option_have_the_same_kinds() -> None:
    assert compression_of("2026/A.CSV.GZ") == "gzip"
    assert compression_of("a.csv") is None
    choices = set(load_spec("posix_fs").options["compression_format"].choices) - {"none", "gz"}
    assert choices == set(ENDINGS.values()) == {*PACKED, "zip"}
