"""``tests/support/files_in_memory``: where the temporary files of a command are, and when they are removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "files_in_memory"
MEMORY = Path("/dev/shm")

pytestmark = pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="needs /dev/shm")


def ran(kilobytes: int, command: str, tmp_path: Path) -> tuple[Path, int]:
    """The folder for temporary files that the command had, and its exit status."""
    done = subprocess.run(
        [SCRIPT, str(kilobytes), "sh", "-c", f'echo "$TMPDIR"; {command}'],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(done.stdout.strip()), done.returncode


def test_the_files_of_a_command_that_succeeds_are_removed(tmp_path: Path) -> None:
    folder, status = ran(1, 'touch "$TMPDIR/file"', tmp_path)
    assert (folder.parent, status) == (MEMORY, 0)
    assert not folder.exists()


def test_the_files_of_a_command_that_fails_stay_until_the_next_run(tmp_path: Path) -> None:
    failed, status = ran(1, 'touch "$TMPDIR/file"; exit 3', tmp_path)
    assert (status, (failed / "file").exists()) == (3, True)
    ran(1, "true", tmp_path)
    assert not failed.exists()


def test_other_users_reach_files_whose_path_they_know(tmp_path: Path) -> None:
    failed, _ = ran(1, "exit 1", tmp_path)
    assert failed.stat().st_mode & 0o777 == 0o711
    ran(1, "true", tmp_path)


def test_without_enough_room_the_files_stay_where_they_were(tmp_path: Path) -> None:
    assert ran(10**15, "exit 4", tmp_path) == (tmp_path, 4)
