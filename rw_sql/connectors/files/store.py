"""Lists and opens the files of a local folder or a bucket. Uses the library fsspec.

Spark's workers receive this module and ``support.incarnations`` by value. This module imports no other module of
rw_sql.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import fsspec

from rw_sql.connectors.support.incarnations import gcs_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCAL = "file"

_DECODED_BY_AIOHTTP = ("gzip", "deflate", "br", "zstd")
_DECODED_BY_AZURE = ("gzip", "deflate")
_READABLE = ("gzip", "zstd")
"""The content encodings of stored objects that are also the names of compressions of files."""
_MOST_OF_NAME = 500
"""The maximum length of a quoted file name in a command that a message shows."""

_LITERAL = re.compile(r"[^*?\[]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file. ``path`` is the file's path below the root. ``incarnation`` identifies the file's version and begins with
    the file's size.

    ``modified_ms`` is the time when the file was written, in milliseconds since 1970; None if the store does not report
    the time. ``content_encoding`` is the object's Content-Encoding if the store's client decodes it; otherwise None. If
    the client decodes an object, the bytes that it returns differ from the bytes that the store holds.
    """

    path: str
    size: int
    incarnation: str
    modified_ms: int | None
    content_encoding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    """A root folder or bucket.

    ``arguments`` are fsspec's arguments for the protocol, including access keys. The ``repr`` of this object omits
    these arguments.
    """

    protocol: str
    root: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_local(self) -> bool:
        """True for a folder on this machine."""
        return self.protocol == LOCAL

    def filesystem(self) -> Any:
        """The fsspec file system, without a cache of listings."""
        return fsspec.filesystem(
            self.protocol, **({} if self.is_local else {"use_listings_cache": False, **self.arguments})
        )

    def full_path(self, path: str) -> str:
        """The path of a file in the file system, from its path below the root."""
        return f"{self.root.rstrip('/')}/{path}"

    def files(self, pattern: str | None = None) -> Iterator[FoundFile]:
        """The files below the root whose paths match ``pattern`` (None: all files), in no particular order.

        Raises the exceptions of the file system's client.

        ``*`` matches any characters, slashes included. Files and folders whose names begin with a dot or an underscore
        are skipped, together with everything below such a folder. Writers use these names for unfinished files and for
        metadata.
        """
        fits = re.compile(fnmatch.translate(pattern)).match if pattern else None
        for found in self._local_files() if self.is_local else self._remote_files(pattern):
            if fits is None or fits(found.path):
                yield found

    def find(self, path: str) -> FoundFile:
        """Returns the current version of one file. Raises FileNotFoundError if the file does not exist."""
        if self.is_local:
            return _local_file(path, os.stat(self.full_path(path)))
        return _remote_file(path, self.filesystem().info(self.full_path(path)))

    def _local_files(self) -> Iterator[FoundFile]:
        # Uses scandir instead of pathlib, because scandir yields the entries one by one, and with 100,000 files, each
        # object of pathlib costs time.
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                found = os.scandir(os.path.join(self.root, folder))
            except FileNotFoundError:
                if not folder:
                    raise
                continue  # the folder was removed after its parent was listed
            with found as entries:
                for entry in entries:
                    if entry.name[0] in "._":
                        continue
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir():
                        waiting.append(path)
                        continue
                    try:
                        yield _local_file(path, entry.stat())
                    except FileNotFoundError:  # the file was removed after the folder was listed
                        continue

    def _remote_files(self, pattern: str | None) -> Iterator[FoundFile]:
        first = _literal_folder(pattern)
        top = self.full_path(first) if first else self.root
        length = len(self.root.rstrip("/")) + 1
        filesystem = self.filesystem()
        missing: list[FileNotFoundError] = []

        def on_error(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error
            missing.append(error)

        for folder, folders, files in filesystem.walk(top, detail=True, on_error=on_error):
            below = folder.strip("/")[length:]
            for name in [name for name in folders if not name or name[0] in "._"]:
                del folders[name]  # so that walk does not enter this folder
            for name, info in files.items():
                if name and name[0] not in "._":
                    yield _remote_file(f"{below}/{name}" if below else name, info)
        # In an object store, a folder exists only while it contains a file, and the last file may just have been
        # removed.
        if missing and not filesystem.exists(self.root):
            raise missing[0]


def fault_of_encoding(store: FileStore, found: FoundFile, compression: str | None, *, is_lines: bool) -> str | None:
    """Returns a text with the reason why a file with a Content-Encoding cannot be read, and advice for the user.
    Returns None for an empty file, and for a file whose ``content_encoding`` is None.

    ``compression`` is the compression that the source expects of the file; None for no compression. ``is_lines`` is
    true for a file of lines. The advice contains the command that removes the encoding only if the encoding is the same
    as ``compression``. Otherwise, the source would read the compressed bytes as lines after the command.
    """
    encoding = found.content_encoding
    if encoding is None or found.size == 0:
        return None
    advice = "upload the file again without this encoding"
    if is_lines and encoding == compression:
        advice = (
            f"remove the encoding ({_command_without_encoding(store, found.path)}); if the content is compressed "
            "twice, upload the file again instead"
        )
    elif is_lines and encoding in _READABLE and compression is None:
        advice += (
            f"; if all files of the source have this encoding, first set compression_format = '{encoding}', and then "
            "remove the encoding"
        )
    return (
        f"{found.path}: it is stored with Content-Encoding: {encoding}, and the store's client decompresses such a "
        f"file, so offsets cannot count its bytes: {advice}"
    )


def _command_without_encoding(store: FileStore, path: str) -> str:
    """The command that removes a file's encoding. If the file's name is long, the command contains "…" in place of the
    name. The message that contains the command also contains the name. With a long name in both places, the end of the
    message would be cut off."""
    container, _, name = store.full_path(path).partition("/")
    if len(shlex.quote(name)) > _MOST_OF_NAME:
        name = "…"
    if store.protocol == "gs":
        return f"gcloud storage objects update {shlex.quote(f'gs://{container}/{name}')} --clear-content-encoding"
    return (
        f"az storage blob update --container-name {shlex.quote(container)} --name {shlex.quote(name)} "
        "--clear-content-settings true --content-type application/octet-stream"
    )


def is_storable(path: str) -> bool:
    """False for a name that is not UTF-8: no catalog or table can store such a name."""
    try:
        path.encode()
    except UnicodeEncodeError:  # Python represents bytes of a name that are not UTF-8 as surrogates.
        return False
    return True


def incarnation_size(incarnation: str | None) -> int | None:
    """Returns the file's size, with which an incarnation begins; None if the incarnation is unknown."""
    size = (incarnation or "").partition("-")[0]
    return int(size) if size.isdecimal() else None


def _literal_folder(pattern: str | None) -> str:
    """The deepest folder that is certain to contain all paths that match a pattern; empty for the root."""
    literal = _LITERAL.match(pattern or "")
    return literal[0].rpartition("/")[0] if literal else ""


def _local_file(path: str, stat: os.stat_result) -> FoundFile:
    return FoundFile(
        path=path,
        size=stat.st_size,
        incarnation=f"{stat.st_size}-{stat.st_mtime_ns}",
        modified_ms=stat.st_mtime_ns // 1_000_000,
    )


def _remote_file(path: str, info: Mapping[str, Any]) -> FoundFile:
    times = ("LastModified", "last_modified", "mtime", "updated")
    generation = str(info.get("generation"))
    if generation.isdecimal():
        # If the metadata of an object in Google Cloud Storage changes, for example the storage class, the object's ETag
        # and the time "updated" change too. The generation, and the time when the generation was written, do not
        # change.
        modified = _first(info, ("ctime", *times))
        tag = gcs_tag(int(generation))
    else:
        modified = _first(info, times)
        tag = str(_first(info, ("ETag", "etag", "md5Hash")) or modified).strip('"')
    return FoundFile(
        path=path,
        size=int(info["size"]),
        incarnation=f"{int(info['size'])}-{tag}",
        modified_ms=int(modified.timestamp() * 1000) if isinstance(modified, datetime) else None,
        content_encoding=_decoded_encoding(info),
    )


def _decoded_encoding(info: Mapping[str, Any]) -> str | None:
    """The Content-Encoding that the client decodes; None if there is none. Only the clients gcsfs and adlfs decode
    objects, and each of them reports the encoding under its own key. The client s3fs returns the stored bytes."""
    for given, decoded in (
        (info.get("contentEncoding"), _DECODED_BY_AIOHTTP),
        (getattr(info.get("content_settings"), "content_encoding", None), _DECODED_BY_AZURE),
    ):
        name = str(given or "").strip().lower()
        if name in decoded:
            return name
    return None


def _first(info: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Returns the first value that the store reports for one of these keys; None if the store reports no value for
    them."""
    return next((info[key] for key in keys if info.get(key)), None)
