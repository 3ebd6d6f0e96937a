"""Processes that do their part of one test, one after the other, each from what the one before left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Runs a module as a process, its task as JSON on the standard input. All of them say it into one file."""

    module: str
    folder: Path
    seconds: float

    def live(self, task: Mapping[str, object]) -> int:
        """What came of one process: its return code. Raises TimeoutExpired where it lives too long."""
        path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "said.txt").open("ab") as said:
            child = subprocess.run(
                [sys.executable, "-m", self.module],
                input=json.dumps(task).encode(),
                stdout=said,
                stderr=said,
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": path},
                timeout=self.seconds,
                check=False,
            )
        return child.returncode

    def said(self) -> str:
        """The end of what they said."""
        return (self.folder / "said.txt").read_text(errors="replace")[-3000:]
