"""``python -m proof``: runs the proofs, goes on with a broken-off one; exit status 1 if a claim does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proof.harness import Trial, current_commit, find_proofs, run_proof, write_page

HERE = Path(__file__).parent


def main(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[PROOF]...", help="These proofs; all by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Name the proofs and stop.")] = False,
) -> None:
    """Put the claims to the test, seed by seed."""
    proofs = [proof for proof in find_proofs(HERE / "cases") if not only or proof.name in only]
    unknown = set(only or ()) - {proof.name for proof in proofs}
    if unknown:
        raise typer.BadParameter(f"no such proof: {', '.join(sorted(unknown))}; --list names them")
    if show:
        for proof in proofs:
            typer.echo(f"{proof.name:24} {proof.claim} ({len(proof.seeds)} seeds)")
        return
    commit = current_commit(HERE.parent)
    has_failed = False
    for proof in proofs:
        typer.echo(f"{proof.name}: {proof.claim}")
        trials = run_proof(proof, work=HERE / ".work", commit=commit, on_trial=_tell)
        write_page(proof, trials, HERE.parent / "docs" / "proof" / f"{proof.name}.md")
        has_failed = has_failed or any(trial.failure is not None for trial in trials.values())
    if has_failed:
        raise typer.Exit(1)


def _tell(trial: Trial) -> None:
    typer.echo(f"  seed {trial.seed}: {trial.failure or 'held'} ({trial.seconds:.1f} s)")


if __name__ == "__main__":
    typer.run(main)
