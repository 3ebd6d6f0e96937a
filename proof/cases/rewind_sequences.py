"""Random histories of a source with rewinds, rewinds of rewinds, and kills."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from tests.runtime.rewind_sequences import live_on

LENGTH = 12


def _check(seed: int, folder: Path) -> Facts:
    return live_on(folder, seed=seed, length=LENGTH)


PROOF = Proof(
    name="rewind-sequences",
    claim="After REWIND the log and every view are as if the operations since then had never happened.",
    method=(
        "A source has four views (rows as they come, counts by key, a self-join, a view on a view), on real Delta "
        "tables, checkpoints and a real metastore. The queries are a few lines of Python that keep state, and fail on "
        f"removed rows as Spark's do. {LENGTH} random steps are run per seed: reading, in one or more batches and "
        "runs; moving the source; REWIND to any operation with a rewind point, earlier rewinds included, killed up to "
        "three times at random steps. After each step the rows of the log and of all views, and the position, are "
        "compared with a model."
    ),
    seeds=range(40),
    check=_check,
)
