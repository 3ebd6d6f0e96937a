"""``python -m proof``: runs the proofs and resumes an interrupted run. The exit status is 1 if a claim does not
hold."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proof.harness import Proof, Trial, find_proofs, known_trials, run_proof, tried_commit, write_page
from rw_sql.cli.process_cleanup import keep_tidy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
WORK = HERE / ".work"
_SHARES_EACH = 8


def main(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[PROOF]...", help="The proofs to run; by default all.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the proofs and exit.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="The number of processes that share the seeds.")] = 1,
    seed: Annotated[list[int] | None, typer.Option(help="Run only these seeds, and write no report.")] = None,
) -> None:
    """Test the claims of proofs, seed by seed."""
    proofs = [proof for proof in find_proofs(HERE / "cases") if not only or proof.name in only]
    unknown = set(only or ()) - {proof.name for proof in proofs}
    if unknown:
        raise typer.BadParameter(f"no such proof: {', '.join(sorted(unknown))}; --list names them")
    if show:
        for proof in proofs:
            typer.echo(f"{proof.name:24} {proof.claim} ({len(proof.seeds)} seeds)")
        return
    keep_tidy()
    commit = tried_commit(HERE.parent)
    if seed is not None:
        for proof in proofs:
            run_proof(proof, work=WORK, commit=commit, on_trial=_tell, seeds=seed)
        return
    has_failed = False
    for proof in proofs:
        typer.echo(f"{proof.name}: {proof.claim}")
        number = min(workers, len(proof.seeds))
        with proof.surroundings():
            if number > 1:
                _run_shares(proof, number, {} if commit.endswith("+") else known_trials(proof, WORK, commit))
                trials = known_trials(proof, WORK, commit)
            else:
                trials = run_proof(proof, work=WORK, commit=commit, on_trial=_tell)
        write_page(proof, trials, HERE.parent / "docs" / "proof" / f"{proof.name}.md")
        has_failed = has_failed or any(trial.failure is not None for trial in trials.values())
    if has_failed:
        raise typer.Exit(1)


def _run_shares(proof: Proof, number: int, known: Mapping[int, Trial]) -> None:
    """Runs the seeds of a proof that have not passed yet, in at most ``number`` processes at the same time. Each
    process gets only a few seeds, because some seeds take much longer than others. Raises CalledProcessError if a
    process does not finish."""
    left = [seed for seed in proof.seeds if seed not in known or known[seed].failure is not None]
    count = max(1, len(left) // (_SHARES_EACH * number))
    command = [sys.executable, "-m", "proof", proof.name]

    def run(seeds: Sequence[int]) -> None:
        subprocess.run([*command, *(f"--seed={seed}" for seed in seeds)], cwd=HERE.parent, check=True)

    with ThreadPoolExecutor(number) as pool:
        list(pool.map(run, (left[at : at + count] for at in range(0, len(left), count))))


def _tell(trial: Trial) -> None:
    typer.echo(f"  seed {trial.seed}: {trial.failure or 'held'} ({trial.seconds:.1f} s)")


if __name__ == "__main__":
    typer.run(main)
