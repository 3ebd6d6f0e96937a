"""Opens compressed files of lines for reading.

A file may consist of several frames, streams or members, as pigz, pzstd and ``cat`` write it. All of these parts are
read. Reading a truncated file raises an error. Spark's workers receive this module by value. Therefore, it imports no
other module of rw_sql.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ENDINGS: Mapping[str, str] = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".lzma": "xz",
    ".zst": "zstd",
    ".zip": "zip",
    ".lz4": "lz4",
    ".snappy": "snappy",
    ".sz": "snappy",
}
"""Maps the endings of file names, in lower case, to the names of compressions."""

_CHUNK = 1024 * 1024
_SNAPPY_CHUNK = 65_536
"""The maximum number of decompressed bytes in a chunk of Snappy's framing format."""

_SNAPPY_BEGIN = b"\xff\x06\x00\x00sNaPpY"


class CompressedError(ValueError):
    """Raised if a file's content does not have the expected compression. The message does not contain the file's name;
    the caller must add it."""


def compression_of(path: str) -> str | None:
    """Returns the compression that the ending of a file's name denotes; None if the ending denotes no compression."""
    lower = path.lower()
    return next((name for ending, name in ENDINGS.items() if lower.endswith(ending)), None)


def decompressed(file: Any, name: str) -> io.BufferedReader:
    """The decompressed content of an open compressed file, from the beginning. ``name`` is the name of the compression.

    Closing the result leaves ``file`` open. Both this function and later reads of the result may raise CompressedError.
    """
    file.seek(0)
    shared = _Shared(file)
    return io.BufferedReader(_Guarded(shared, name), _CHUNK)


class _Shared(io.RawIOBase):
    """A wrapper around an open file. Closing the wrapper leaves the file open. ``fault`` is the error that reading the
    file raised; None if there was no error."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.fault: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        at: int = self._inner.seek(place, whence)
        return at

    def tell(self) -> int:
        at: int = self._inner.tell()
        return at

    def read(self, size: int = -1) -> bytes:
        try:
            found: bytes = self._inner.read(size)
        except Exception as error:
            self.fault = error
            raise
        return found


class _Guarded(io.RawIOBase):
    """The decompressed content of a file. Reading raises CompressedError for invalid content. If the compressed file
    itself cannot be read, the original error is raised."""

    def __init__(self, file: _Shared, name: str) -> None:
        self._file = file
        self._name = name
        self._inner = self._checked(lambda: _OPENERS[name](file))

    def _checked(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except Exception as error:  # zlib.error, LZMAError, EOFError and BadZipFile have no other base class in common.
            if self._file.fault is not None:
                raise self._file.fault from error
            if isinstance(error, CompressedError):
                raise
            raise CompressedError(f"it cannot be decompressed as {self._name}: {error}") from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._checked(lambda: self._inner.read(len(buffer)))
        buffer[: len(found)] = found
        return len(found)


def _unzipped(file: Any) -> Any:
    """The only member of a zip archive. Folders, and hidden members such as those that macOS adds, do not count."""
    archive = zipfile.ZipFile(file)
    names = [
        member.filename
        for member in archive.infolist()
        if not member.is_dir() and not any(part.startswith((".", "_")) for part in member.filename.split("/"))
    ]
    if len(names) != 1:
        raise CompressedError(f"the archive has {len(names)} files, and only an archive of one file can be read")
    return archive.open(names[0])


def _by_arrow(name: str) -> Callable[[Any], Any]:
    def opened(file: Any) -> Any:
        import pyarrow as pa  # imported here, because an installation for rw-sql check lacks pyarrow

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), name)

    return opened


class _Snappy(io.RawIOBase):
    """A file in the framing format of Snappy, as python-snappy and snzip write it."""

    def __init__(self, file: Any) -> None:
        self._parts = _snappy_parts(file)
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return b""
            self._left = part
        found, self._left = self._left[:size], self._left[size:]
        return found


def _snappy_parts(file: Any) -> Iterator[bytes]:
    import pyarrow as pa

    if file.read(len(_SNAPPY_BEGIN)) != _SNAPPY_BEGIN:
        raise CompressedError("it is not in the framing format of snappy, which python-snappy and snzip write")
    while head := file.read(4):
        size = int.from_bytes(head[1:], "little")
        data = file.read(size)
        if len(head) < 4 or len(data) < size:
            raise EOFError("it ends early")
        if head[0] == 0:
            block = data[4:]
            length = _snappy_length(block)
            if length > _SNAPPY_CHUNK:
                raise CompressedError(f"it has a chunk of {length} bytes, and the format allows {_SNAPPY_CHUNK}")
            yield pa.decompress(block, length, codec="snappy", asbytes=True)
        elif head[0] == 1:
            yield data[4:]
        elif head[0] < 0x80:
            raise CompressedError(f"it has a chunk of the unknown type {head[0]}")


def _snappy_length(block: bytes) -> int:
    """The length of a block's decompressed content. The block begins with this length."""
    length = 0
    for at, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return length
    raise EOFError("it ends early")


_OPENERS: Mapping[str, Callable[[Any], Any]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zip": _unzipped,
    "zstd": _by_arrow("zstd"),
    "lz4": _by_arrow("lz4"),
    "snappy": _Snappy,
}
