"""Runs a long proof seed by seed, and stores each result, so that an interrupted run continues with the next seed.

A proof is a module in ``proof/cases`` with a constant ``PROOF``. The results of its seeds are stored in
``proof/.work/<name>.jsonl``; ``docs/proof/<name>.md`` is written from them.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

Facts = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A claim, and the function that tests it with one seed.

    ``check(seed, folder)`` works in a separate empty folder and returns measurements, whose numbers are added up over
    all seeds. It raises AssertionError if the claim does not hold. A seed must always give the same run.

    ``surroundings()`` is entered once around all seeds, in the process that starts the workers.
    """

    name: str
    claim: str
    method: str
    seeds: range
    check: Callable[[int, Path], Facts]
    surroundings: Callable[[], AbstractContextManager[object]] = nullcontext
    columns: tuple[str, ...] = ()
    """The facts that the page shows for each seed, one row per seed, in place of their totals."""


class RefutedError(AssertionError):
    """Raised if a claim does not hold. ``facts`` are the measurements that refute the claim."""

    def __init__(self, message: str, facts: Facts) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one seed. ``failure`` is None if the claim held; ``commit`` is the tested code."""

    seed: int
    commit: str
    seconds: float
    facts: Facts = field(default_factory=dict)
    failure: str | None = None


def find_proofs(folder: Path) -> Iterator[Proof]:
    """Every proof of the modules in ``proof/cases``, in the order of module names."""
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda found: found.name):
        yield importlib.import_module(f"proof.cases.{module.name}").PROOF


TRIED = ("rw_sql", "grammar", "sources", "catalog", "pyproject.toml", "proof", "tests")
"""The product and its tests. Trials stay valid after a commit that changes none of these, such as one to the docs."""


def tried_commit(root: Path) -> str:
    """The checkout's newest commit that changes something in ``TRIED``, with ``+`` if such files have uncommitted
    changes."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    newest = git("log", "-1", "--format=%h", "--abbrev=12", "--", *TRIED)
    return newest + ("+" if git("status", "--porcelain", "--", *TRIED) else "")


def read_trials(file: Path) -> dict[int, Trial]:
    """The stored trials of a proof, by seed. An incomplete line, which a killed process has written, is skipped."""
    trials: dict[int, Trial] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        try:
            trial = Trial(**json.loads(line))
        except json.JSONDecodeError:
            continue
        trials[trial.seed] = trial
    return trials


def known_trials(proof: Proof, work: Path, commit: str) -> dict[int, Trial]:
    """The stored trials of a proof's seeds for this commit."""
    found = read_trials(work / f"{proof.name}.jsonl")
    return {seed: trial for seed, trial in found.items() if seed in proof.seeds and trial.commit == commit}


def run_proof(
    proof: Proof, *, work: Path, commit: str, on_trial: Callable[[Trial], None], seeds: Iterable[int] | None = None
) -> dict[int, Trial]:
    """Runs those of ``seeds`` (default: all seeds) that have not passed for this commit yet. Returns the trials of all
    seeds.

    A failed seed is run again. A trial of a commit with uncommitted changes (``+``) never counts as passed.
    """
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"{proof.name}.jsonl"
    trials = known_trials(proof, work, commit)
    for seed in proof.seeds if seeds is None else seeds:
        known = trials.get(seed)
        if known is not None and known.failure is None and not commit.endswith("+"):
            continue
        trial = _try(proof, seed, commit)
        trials[seed] = trial
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(trial)) + "\n")
        on_trial(trial)
    return trials


def _try(proof: Proof, seed: int, commit: str) -> Trial:
    started = time.monotonic()
    facts: Facts = {}
    failure: str | None = None
    with tempfile.TemporaryDirectory(prefix=f"{proof.name}-{seed}-") as folder:
        try:
            facts = proof.check(seed, Path(folder))
        except AssertionError as wrong:
            failure = str(wrong) or "the claim did not hold"
            facts = wrong.facts if isinstance(wrong, RefutedError) else {}
    return Trial(seed=seed, commit=commit, seconds=time.monotonic() - started, facts=facts, failure=failure)


def write_page(proof: Proof, trials: Mapping[int, Trial], page: Path) -> None:
    """Writes a proof's page: the claim, the method, the results, and every failure by its seed."""
    failed = [trial for trial in trials.values() if trial.failure is not None]
    totals: dict[str, float] = {}
    for trial in trials.values():
        for name, value in trial.facts.items():
            if isinstance(value, int | float) and name not in proof.columns:
                totals[name] = totals.get(name, 0) + value
    lines = [
        f"# {proof.claim}",
        "",
        proof.method,
        "",
        "| | |",
        "|---|---|",
        f"| seeds | {len(trials)} of {len(proof.seeds)} ({proof.seeds.start} to {proof.seeds.stop - 1}) |",
        f"| held | {len(trials) - len(failed)} |",
        f"| failed | {len(failed)} |",
        *(f"| {name} | {value:,g} |" for name, value in totals.items()),
        f"| commit | {', '.join(sorted({trial.commit for trial in trials.values()}))} |",
        f"| ended | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, after {sum(t.seconds for t in trials.values()):,.0f} s |",
    ]
    if proof.columns:
        lines += ["", f"| {' | '.join(proof.columns)} | commit |", "|---" * (len(proof.columns) + 1) + "|"]
        for _, trial in sorted(trials.items()):
            cells = (str(trial.facts.get(name, "")) for name in proof.columns)
            lines.append(f"| {' | '.join(cells)} | {trial.commit} |")
    if failed:
        lines += ["", "## Failures", ""]
        lines += [f"- seed {trial.seed}: {trial.failure}" for trial in failed]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
