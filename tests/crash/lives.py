"""Processes that do their part of one test, one after the other, each from what the one before left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.ageing import PAUSES, WEEK, Pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Runs a module as a process, its task as JSON on the standard input. All of them say it into one file.

    Their warehouse is in ``folder``. Between two of them passes what ``pauses`` draw; where that is a week,
    ``expire`` then takes away what an upstream does not keep for so long.
    """

    module: str
    folder: Path
    seconds: float
    pauses: Pauses = field(default_factory=Pauses)
    expire: Callable[[], None] | None = None

    def live(self, task: Mapping[str, object]) -> int:
        """What came of one process: its return code. Raises TimeoutExpired where it lives too long."""
        pause = self.pauses.pass_over(self.folder / "warehouse")
        if PAUSES[pause] >= WEEK and self.expire is not None:
            self.expire()
        with (self.folder / "said.txt").open("a", encoding="utf-8") as said:
            said.write(f"a process begins, {pause}\n")
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
