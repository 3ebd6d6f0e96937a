"""Reads and writes a checkpoint's files through fsspec. On local paths, a write also updates Hadoop's checksum file."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.object_stores import StoreFiles, local_location

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_CHUNK = 512
_CHECKSUM_HEADER = b"crc\0" + _CHUNK.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files below a checkpoint's root. Names are relative to the root."""

    location: str
    root: str
    system: AbstractFileSystem = field(repr=False)

    @staticmethod
    def at(location: str) -> CheckpointFiles:
        """The files at the given path or URI. Raises SqlError FILE_UNREADABLE if the path or URI is invalid, or if the
        package for its file system is not installed. Does not check whether the path or URI exists."""
        import fsspec

        # Hadoop writes URIs as file:/path, which fsspec cannot read.
        plain = local_location(location)
        try:
            system, root = fsspec.core.url_to_fs(plain, use_listings_cache=False)
        except ImportError as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot reach {location!r}: {str(error).splitlines()[0]}",
                hint="install the fsspec package of that file system: s3fs, gcsfs, adlfs",
            ) from error
        except ValueError as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot reach {location!r}: {error}",
                hint="write the location as /path, or as s3://bucket/path",
            ) from error
        if "://" in plain:
            system = cast("AbstractFileSystem", StoreFiles(system))
        return CheckpointFiles(location, str(root).rstrip("/"), system)

    @property
    def is_local(self) -> bool:
        """True if the checkpoint is in a local file system."""
        protocol = self.system.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else tuple(protocol))

    def path(self, name: str) -> str:
        """The full path of a file or folder whose name is relative to the root."""
        return f"{self.root}/{name}" if name else self.root

    def stamps(self, folder: str) -> dict[str, str]:
        """Returns the visible names in a folder, each with a stamp that changes when the file is written. The result is
        empty if there is no such folder."""
        try:
            found = self.system.ls(self.path(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot read {self.path(folder)!r}: {_reason(error)}",
                hint="give a folder that this process can read",
            ) from error
        stamps = {}
        own = self.path(folder).rstrip("/")
        for info in found:
            path = str(info["name"]).rstrip("/")
            name = path.rpartition("/")[2]
            # In an object store, Hadoop stores an object in place of a folder; a listing of the folder includes this
            # object.
            if name and not name.startswith(".") and path != own:
                written = info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""
                stamps[name] = f"{info.get('size')} {written} {info.get('ETag', '')}"
        return stamps

    def batches(self, folder: str) -> list[int]:
        """The numeric file names in a folder, ascending."""
        return sorted(int(name) for name in self.stamps(folder) if name.isascii() and name.isdecimal())

    def read(self, name: str) -> str:
        """The text of a file. Raises FileNotFoundError if the file does not exist, and SqlError FILE_UNREADABLE if this
        process cannot read it."""
        try:
            data: bytes = self.system.cat_file(self.path(name))
            return data.decode("utf-8")
        except FileNotFoundError:
            raise
        except (OSError, UnicodeDecodeError) as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot read {self.path(name)!r}: {_reason(error)}",
                hint="give a checkpoint whose files this process can read",
            ) from error

    def write(self, name: str, text: str) -> None:
        """Replaces a file's content atomically. A concurrent reader sees either the old or the new content.

        On a local path, also updates Hadoop's checksum file, because Hadoop would refuse a file with an outdated
        checksum.
        """
        data = text.encode()
        try:
            if self.is_local:
                self._replace_local(Path(self.path(name)), data)
            else:
                self.system.pipe_file(self.path(name), data)
        except OSError as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot write {self.path(name)!r}: {_reason(error)}",
                hint="run this as the user that runs the job",
            ) from error

    def _replace_local(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        checksum = path.with_name(f".{path.name}.crc")
        has_checksum = checksum.exists()
        owner = path.stat() if path.exists() else None
        fresh = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
        with fresh.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if owner is not None:
            fresh.chmod(owner.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.chown(fresh, owner.st_uid, owner.st_gid)
        # The checksum is removed first. Hadoop does not check a file without a checksum, so Hadoop never uses a stale
        # checksum.
        checksum.unlink(missing_ok=True)
        fresh.replace(path)
        sync(path.parent)
        if has_checksum:
            checksum.write_bytes(checksum_of(data))


def sync(path: Path | str) -> None:
    """Forces a local file, or the list of names in a local folder, to the disk (fsync).

    If a machine crashes before the folder's names are on the disk, the rename of a file may be lost, even if the file's
    content is on the disk.
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def checksum_of(data: bytes) -> bytes:
    """Returns the content of a checksum file for Hadoop's checksummed file system. The file contains a CRC-32 for every
    512 bytes."""
    chunks = (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
    return _CHECKSUM_HEADER + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.lower()
