"""The commands of the README's section "Five minutes", typed at a terminal: the seconds of each step, and the longest
time without any output."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from proof.harness import Facts, Proof
from rw_sql.syntax import split_script
from tests.integration.processes import at_a_terminal
from tests.support.load import busy_neighbours

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FIRST_RESULT_SECONDS = 120.0
SILENT_SECONDS = 2.0
_NEIGHBOURS = 4
_LIMIT_SECONDS = 1800.0
_PROMPT = "rw_sql>"


def _blocks(language: str) -> str:
    """The block of a language in the README's section."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Five minutes")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None, f"the README's five minutes have no block of {language}"
    return found[1]


def _commands() -> list[str]:
    """The commands of the shell block, each with its continuation lines."""
    return re.sub(r"\s*\\\n\s*", " ", _blocks("sh")).strip().splitlines()


def _check(seed: int, folder: Path) -> Facts:
    is_loaded = seed == 1
    with busy_neighbours(_NEIGHBOURS if is_loaded else 0, 0):
        steps = dict(_steps(folder))
    silence = steps.pop("longest silence")
    first = sum(steps[name] for name in list(steps)[: list(steps).index("SELECT * FROM totals") + 1])
    name = f"beside {_NEIGHBOURS} busy processes" if is_loaded else "idle"
    if not is_loaded:
        assert first < FIRST_RESULT_SECONDS, f"the first result came after {first:.0f} s: {steps}"
        assert silence <= SILENT_SECONDS, f"nothing was shown for {silence:.1f} s: {steps}"
    return {
        f"{name}: {step}, s": round(seconds, 1)
        for step, seconds in {**steps, "until the first result": first, "longest silence": silence}.items()
    }


def _steps(folder: Path) -> Iterator[tuple[str, float]]:
    """The steps with their seconds, and at the end the longest silence."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",  # A terminal of the type "dumb" would show no status line.
    }
    silences = []
    *before, shell_command = _commands()
    try:
        for command in before:
            began = time.monotonic()
            with at_a_terminal(["bash", "-c", f"{command}; echo status $?"], folder, environment) as terminal:
                said = terminal.read_until("status ", _LIMIT_SECONDS) + terminal.read_until("\n", _LIMIT_SECONDS)
                assert said.rstrip().endswith("status 0"), said
            silences.append(terminal.longest_silence)
            yield " ".join(command.partition("|")[2].split()[:4] or command.split()[:4]), time.monotonic() - began
        began = time.monotonic()
        with at_a_terminal(shell_command.split(), folder, environment) as shell:
            shell.read_until(_PROMPT, _LIMIT_SECONDS)
            yield "the shell, until its prompt", time.monotonic() - began
            for statement in split_script(_blocks("sql")):
                began = time.monotonic()
                shell.type_text(f"\x1b[200~{statement.text};\x1b[201~\n")
                shown = shell.read_until(" ms", _LIMIT_SECONDS) + shell.read_until(_PROMPT, _LIMIT_SECONDS)
                assert re.search(r"\bRW\d{3}\b", shown) is None, shown
                if statement.text.startswith("SELECT"):
                    assert "ann" in shown, shown
                    assert "15" in shown, shown
                yield " ".join(statement.text.split()[:4]), time.monotonic() - began
            shell.type_line("\\q")
            shell.process.wait(_LIMIT_SECONDS)
        silences.append(shell.longest_silence)
    finally:
        with at_a_terminal(["rw-sql", "dev", "kafka", "stop"], folder, environment) as terminal:
            terminal.process.wait(_LIMIT_SECONDS)
    yield "longest silence", max(silences)


PROOF = Proof(
    name="five-minutes",
    claim=f"The README's five minutes show their first result within {FIRST_RESULT_SECONDS:.0f} s of an installed "
    f"package, and nothing is silent for longer than {SILENT_SECONDS:.0f} s.",
    method="The commands and statements of the README are typed at a terminal, one after the other, without a pause: "
    f"once on an otherwise idle machine, and once beside {_NEIGHBOURS} processes that compute without pause. The "
    "claim is tested in the first run; the times of the second run are only reported.",
    seeds=range(2),
    check=_check,
)
