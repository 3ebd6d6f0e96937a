"""Finds URIs of object stores that the libraries interpret in different ways, and converts the errors of the stores'
clients to OSError.

The libraries delta-rs, fsspec and Hadoop all access the files of a warehouse. Each library has its own rules for URIs
and its own exceptions.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENTS = frozenset(
    {"adlfs", "aiobotocore", "aiohttp", "azure", "boto3", "botocore", "gcsfs", "google", "requests", "s3fs", "urllib3"}
)
"""The packages that contain the stores' clients. An exception counts as an error of a client if its class is defined in
one of these packages."""

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
# delta-rs cuts a URI at # and ?, decodes %20, resolves . and .., drops tabs, and refuses the other characters of this
# pattern. fsspec and Hadoop treat all of these characters as parts of the name, and * and {} as patterns.
_UNFIT = re.compile(r"[#?*{}\[\]\\^|\x00-\x1f\x7f]")
_UNFIT_NAMES = ("", ".", "..")
# In a local path, delta-rs panics at the first four characters of this pattern, reads a backslash as a slash, and
# refuses control characters.
_UNFIT_LOCAL = re.compile(r"[\[\]^|\\\x00-\x1f\x7f]")


def local_location(location: str) -> str:
    """Removes the scheme ``file`` from a location. The location may be written as file:///path, as Hadoop's file:/path,
    or with the host localhost. Other locations are returned unchanged."""
    if not location.startswith("file:/"):
        return location
    path = location.removeprefix("file:")
    return path if not path.startswith("//") else path.removeprefix("//").removeprefix("localhost")


def unfit_part(uri: str) -> str | None:
    """Describes the part of an object store's URI that the libraries interpret in different ways; None if there is no
    such part."""
    path = uri.partition("://")[2]
    if (escape := _ESCAPE.search(path)) is not None:
        return f"{escape[0]}, which Delta reads as one character"
    if (unfit := _UNFIT.search(path)) is not None:
        return f"the character {unfit[0]!r}"
    name = next((name for name in path.strip("/").split("/") if name in _UNFIT_NAMES), None)
    return None if name is None else f"the folder name {name!r}"


def unfit_local_part(path: str) -> str | None:
    """Describes the part of a local path that delta-rs refuses, or that delta-rs and Spark interpret in different ways;
    None if there is no such part."""
    if (escape := _ESCAPE.search(path)) is not None:
        return f"{escape[0]}, which Delta reads as one character"
    unfit = _UNFIT_LOCAL.search(path)
    return None if unfit is None else f"the character {_shown(unfit[0])}"


def _shown(character: str) -> str:
    return f"'{character}'" if character.isprintable() else repr(character)


_OF_STORE = re.compile(r"External: |\bGeneric \w+ error: |\bos error \d")
"""Matches a message of Arrow that reports an error of the store. All other error messages of Arrow are about the
data."""

_CAUSE_MARK = "↳"
_CAUSE = re.compile(rf"\s*\n\s*(?:\x1b\[\d+m)?{_CAUSE_MARK}(?:\x1b\[\d*m)?\s*")
_DURATION = re.compile(r" in [\d.]+(?:ns|µs|ms|s)(?=, after | - )")


def join_causes(text: str) -> str:
    """Joins the lines of each message of delta-rs in ``text`` into one line.

    The library delta-rs writes each cause on a separate line below "Generic S3 error". The first line alone therefore
    does not name a cause. The result omits the duration of a request, so each repetition of a failure has the same
    message.
    """
    return _DURATION.sub("", _CAUSE.sub(": ", text)) if _CAUSE_MARK in text else text


def one_line(error: object) -> str:
    """Returns the first line of an error's message, after joining the lines with the causes (:func:`join_causes`)."""
    return join_causes(str(error).strip()).split("\n")[0].strip()


@contextmanager
def client_errors() -> Iterator[None]:
    """A context manager that raises exceptions of a store's client as OSError, with the same message.

    The library fsspec converts only the errors in a store's responses. If the store does not respond, or the keys have
    expired, the client raises its own exception, which is not an OSError.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        packages = {each.__module__.partition(".")[0] for each in type(error).__mro__}
        if packages.isdisjoint(_CLIENTS):
            raise
        raise OSError(one_line(error) or type(error).__name__) from error


@contextmanager
def delta_errors() -> Iterator[None]:
    """A context manager for writes by delta-rs. The library reports some failures as a plain Exception, for example a
    disk that becomes full while a Parquet file is written. The context manager converts such an exception to an
    OSError."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception or _OF_STORE.search(str(error)) is None:
            raise
        raise OSError(one_line(error)) from error


class StoreFiles:
    """An fsspec file system of an object store that raises OSError whenever its client fails."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._system, name)
        if not callable(found):
            return found

        @wraps(found)
        def call(*args: Any, **options: Any) -> Any:
            with client_errors():
                return found(*args, **options)

        return call

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """The content of a file, or its bytes from ``start`` up to ``end``, with one request. Raises FileNotFoundError
        if there is no such file."""
        # By default, s3fs first asks for the size of the file, because it reads large files with several requests.
        options = {"max_concurrency": 1} if "s3" in self._system.protocol else {}
        with client_errors():
            read: bytes = self._system.cat_file(path, start=start, end=end, **options)
        return read

    def open(self, path: str, mode: str = "rb") -> Any:
        """Opens a file for reading bytes, at any position."""
        with client_errors():
            return io.BufferedReader(_StoreFile(self._system.open(path, mode)))


class _StoreFile(io.RawIOBase):
    """An open file of a store, whose reads raise OSError if the client fails."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with client_errors():
            read: bytes = self._file.read(len(buffer))
        buffer[: len(read)] = read
        return len(read)

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
