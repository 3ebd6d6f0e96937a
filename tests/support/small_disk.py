"""A file system in memory that becomes full or read-only, and then writable again."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.support.waits import wait_until

_LOOK_SECONDS = 0.1


def why_no_disk() -> str:
    """The reason why this process cannot mount a file system; empty if it can."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    with tempfile.TemporaryDirectory() as folder:
        if not _is_done("mount", "-t", "tmpfs", "tmpfs", folder):
            return "this machine mounts no file system"
        subprocess.run(["umount", folder], check=True)
    return ""


class Disk:
    """A file system in memory, mounted at ``folder``. ``size`` is the maximum size of its contents, in the form for
    mount."""

    def __init__(self, folder: Path, size: str = "48m") -> None:
        self.folder, self._size = folder, size
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)

    def obstruct(self, how: str) -> None:
        """Makes the disk full or read-only: ``how`` is ``full`` or ``read-only``."""
        if how == "full":
            self.fill()
        else:
            wait_until(lambda: self._remount("ro"), "no file is open for writing", look_seconds=_LOOK_SECONDS)

    def fill(self) -> None:
        """Makes the disk as small as its contents, and fills the remaining space completely."""
        wait_until(self._is_shrunk, "the disk is as small as its contents")
        for size in (1 << 12, 1):
            try:
                with (self.folder / "fill").open("ab", buffering=0) as file:
                    while True:
                        file.write(bytes(size))
            except OSError:
                continue

    def free(self) -> None:
        """Makes the disk writable, and as large as it was."""
        self._remount(f"rw,size={self._size}")
        (self.folder / "fill").unlink(missing_ok=True)

    def end(self) -> None:
        """Removes the file system."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _is_shrunk(self) -> bool:
        """Makes the disk smaller, and returns True if this has succeeded. It fails while other processes write, because
        a file system cannot be smaller than its contents."""
        found = os.statvfs(self.folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        return self._remount(f"size={max(used, found.f_frsize)}")

    def _remount(self, options: str) -> bool:
        return _is_done("mount", "-o", f"remount,{options}", str(self.folder))


def _is_done(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
