"""Searches all files that a process has left behind for a text. Each file is decoded first, whatever its format is."""

from __future__ import annotations

import base64
import filecmp
import io
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

_LONG_ENOUGH = 8
"""The minimum length of a text to search. Some forms of a shorter text would match by chance."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4 = b"\x04\x22\x4d\x18"
_GZIP = b"\x1f\x8b"
_READ_AHEAD = 1 << 16
"""The number of bytes that Arrow reads at a time, before it decodes them."""
_PARQUET = b"PAR1"
_OWN_LZ4 = b"LZ4Block"
"""The framing of Spark's own LZ4 streams (lz4-java's), each block with a header of 21 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A place where a text was found: the file, and the form in which the file contains the text."""

    path: Path
    form: str


def forms(text: str) -> dict[str, bytes]:
    """The forms in which a text may be written: plain, in UTF-16, in hexadecimal, in a URL, and in base64 at any
    offset."""
    raw = text.encode()
    made = {
        "plain": raw,
        "UTF-16, little end first": text.encode("utf-16-le"),
        "UTF-16, big end first": text.encode("utf-16-be"),
        "hexadecimal": raw.hex().encode(),
        "a URL's": quote(text, safe="").encode(),
    }
    for shift in range(3):
        # The characters that depend on the bytes before and after are cut off.
        coded = base64.b64encode(b"\0" * shift + raw)
        made[f"base64 at {shift}"] = coded[-(-8 * shift // 6) : 4 * ((shift + len(raw)) // 3)]
    return made


def search(root: Path, text: str, *, leave_out: str = "\0") -> list[Found]:
    """The places of a text under a folder. See :func:`search_all`."""
    return search_all(root, [text], leave_out=leave_out)[text]


def search_all(
    root: Path, texts: Iterable[str], *, leave_out: str = "\0", older: Iterable[Path] = ()
) -> dict[str, list[Found]]:
    """For each text, the files under a folder whose name or content has the text, in any form.

    Folders whose names begin with ``leave_out`` are skipped. If a file is a copy of a file in ``older``, which was made
    before the texts existed, only the file's name is searched. The search is faster if the texts have the same
    beginning: a file without any form of the beginning contains none of the texts. Raises OSError or ValueError for a
    file in a compressed format that cannot be decoded, because an unreadable file cannot count as clean.
    """
    wanted = {text: forms(text) for text in texts}
    beginning = _common_beginning(wanted)
    # Each form of a text begins with the same form of the text's beginning.
    signs = forms(beginning) if len(beginning) >= _LONG_ENOUGH else dict.fromkeys(forms(""), b"")
    found: dict[str, dict[Found, None]] = {text: {} for text in wanted}
    originals = {path.name: path for path in older}
    for path in sorted(root.rglob("*")):
        if any(part.startswith(leave_out) for part in path.relative_to(root).parts):
            continue
        original = originals.get(path.name)
        is_new = path.is_file() and (original is None or not filecmp.cmp(path, original, shallow=False))
        for part in (path.name.encode(), *(decoded(path.read_bytes()) if is_new else ())):
            for form in [form for form, sign in signs.items() if sign in part]:
                for text, written in wanted.items():
                    if written[form] in part:
                        found[text][Found(path=path, form=form)] = None
    return {text: list(hits) for text, hits in found.items()}


def _common_beginning(texts: Collection[str]) -> str:
    pairs = zip(min(texts, default=""), max(texts, default=""), strict=False)
    return "".join(first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def decoded(raw: bytes) -> Iterator[bytes]:
    """Yields a file's bytes and, if the file is compressed or a container, the decoded contents."""
    yield raw
    if raw.startswith(_PARQUET) and raw.endswith(_PARQUET):
        yield from _parquet(raw)
    elif raw.startswith(_OWN_LZ4):
        yield _blocks(raw)
    elif raw.startswith(_GZIP):
        yield from decoded(zlib.decompressobj(wbits=31).decompress(raw))
    elif raw.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from decoded(archive.read(name))
    elif raw[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(raw)) as tape:
            for member in tape:
                inner = tape.extractfile(member)
                yield from decoded(inner.read()) if inner is not None else ()
    # Files that several writers share contain one stream after another.
    for magic, codec in ((_ZSTD, "zstd"), (_LZ4, "lz4")):
        at = raw.find(magic)
        while at >= 0:
            part, read = _stream(raw[at:], codec)
            yield part
            at = raw.find(magic, max(at + 1, at + read - _READ_AHEAD))


def _parquet(raw: bytes) -> Iterator[bytes]:
    file = pq.ParquetFile(io.BytesIO(raw))
    yield str(file.metadata.metadata).encode()
    for column in file.read().columns:
        yield repr(column.to_pylist()).encode()
        for chunk in column.chunks:
            yield from (buffer.to_pybytes() for buffer in chunk.buffers() if buffer is not None)


def _stream(raw: bytes, codec: str) -> tuple[bytes, int]:
    """The decodable part of consecutive streams, which may be truncated or invalid, and the number of bytes read for
    it."""
    parts = []
    source = pa.BufferReader(raw)
    read = 0
    try:
        with pa.CompressedInputStream(source, codec) as stream:
            while part := stream.read(4096):
                parts.append(part)
                read = source.tell()
    except (OSError, pa.ArrowInvalid):
        pass  # the process was killed during the write, or other data follow
    return b"".join(parts), read


def _blocks(raw: bytes) -> bytes:
    parts = []
    at = 0
    while raw[at : at + 8] == _OWN_LZ4:
        method = raw[at + 8] & 0xF0
        packed, size = (int.from_bytes(raw[at + place : at + place + 4], "little") for place in (9, 13))
        block = raw[at + 21 : at + 21 + packed]
        if len(block) < packed:
            break
        parts.append(block if method == 0x10 else pa.decompress(block, size, codec="lz4_raw", asbytes=True))
        at += 21 + packed
    return b"".join(parts)
