"""The search for forbidden texts finds them in every format that a process leaves behind."""

from __future__ import annotations

import base64
import gzip
import zipfile
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.leaks import forms, search, search_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CANARY = "pl4nted-c4nary/9v+Xw2"


def packed(codec: str, text: str) -> bytes:
    """A stream as Spark writes it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(text.encode() * 50)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def own_lz4(text: str) -> bytes:
    """A stream of lz4-java, as Spark's state stores and shuffles have it by default."""
    raw = text.encode() * 50
    block: bytes = pa.compress(raw, codec="lz4_raw", asbytes=True)
    head = b"LZ4Block" + bytes([0x20 | 6]) + len(block).to_bytes(4, "little") + len(raw).to_bytes(4, "little")
    return head + b"\0\0\0\0" + block


def parquet(path: Path, codec: str) -> None:
    words = pa.array([f"before {CANARY} after", "x"] * 20).dictionary_encode()
    table = pa.table({"s": words, "m": pa.array([{"deep": [CANARY]}] * 40), "b": pa.array([CANARY.encode()] * 40)})
    pq.write_table(table, path, compression=codec)


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.gz", gzip.compress(CANARY.encode()))


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text(f"a line\nwith {CANARY} inside", encoding="utf-8"),
    "utf16": lambda path: path.write_text(CANARY, encoding="utf-16-le"),
    "hexadecimal": lambda path: path.write_text(CANARY.encode().hex(), encoding="utf-8"),
    "url": lambda path: path.write_text("?q=pl4nted-c4nary%2F9v%2BXw2", encoding="utf-8"),
    "base64": lambda path: path.write_bytes(base64.b64encode(f"user:{CANARY}:".encode())),
    "base64, one on": lambda path: path.write_bytes(base64.b64encode(f"-user:{CANARY}".encode())),
    "base64, two on": lambda path: path.write_bytes(base64.b64encode(f"--user:{CANARY}--".encode())),
    "gzip": lambda path: path.write_bytes(gzip.compress(CANARY.encode() * 9)),
    "gzip, cut off": lambda path: path.write_bytes(gzip.compress(CANARY.encode() * 9)[:-4]),
    "zstd": lambda path: path.write_bytes(packed("zstd", CANARY)),
    "zstd after another": lambda path: path.write_bytes(packed("zstd", "nothing") + packed("zstd", CANARY)),
    "zstd with another head": lambda path: path.write_bytes(b"\0\0\0\7" + packed("zstd", CANARY)),
    "lz4": lambda path: path.write_bytes(packed("lz4", CANARY)),
    "Spark's lz4": lambda path: path.write_bytes(own_lz4("nothing") + own_lz4(CANARY)),
    "zip": zipped,
    **{f"parquet, {codec}": partial(parquet, codec=codec) for codec in ("snappy", "zstd", "gzip")},
}


@pytest.mark.parametrize("form", WRITERS)
def test_a_canary_is_found(form: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    WRITERS[form](tmp_path / "sub" / "file")
    assert {found.path.name for found in search(tmp_path, CANARY)} == {"file"}
    assert search(tmp_path, "another-text-altogether") == []


def test_a_name_is_searched_too(tmp_path: Path) -> None:
    (tmp_path / f"part-{CANARY.replace('/', '')}").mkdir()
    assert len(search(tmp_path, CANARY.replace("/", ""))) == 1


def test_what_is_left_out_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "private-1").mkdir()
    (tmp_path / "private-1" / "value").write_text(CANARY)
    assert search(tmp_path, CANARY, leave_out="private-") == []
    assert len(search(tmp_path, CANARY)) == 1


def test_texts_that_begin_alike_are_distinguished_in_every_form(tmp_path: Path) -> None:
    texts = [f"beginning{number}of a secret" for number in range(3)]
    for number, written in enumerate(forms(texts[1]).values()):
        (tmp_path / str(number)).write_bytes(b"before " + written + b" after")
    found = search_all(tmp_path, texts)
    assert {hit.form for hit in found[texts[1]]} == set(forms(texts[1]))
    assert found[texts[0]] == found[texts[2]] == []
