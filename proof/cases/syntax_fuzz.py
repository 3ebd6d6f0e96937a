"""Any text gives statements or an error with a code, soon, and canonical text that means the same."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

from proof.harness import Facts, Proof
from proof.mutate import Mutator, judge, texts

TEXTS_A_SEED = 500


@cache
def _sources() -> list[str]:
    return texts()


def _check(seed: int, folder: Path) -> Facts:
    mutator = Mutator(seed, _sources())
    outcomes: Counter[str] = Counter()
    for _ in range(TEXTS_A_SEED):
        outcomes[judge(mutator.draw())] += 1
    return {"texts": TEXTS_A_SEED, **outcomes}


PROOF = Proof(
    name="syntax-fuzz",
    claim="Every text gives statements or an error with a code and a place: no traceback, none of under 10 kB slower "
    "than 100 ms, and the canonical text of what parses means the same.",
    method=f"{TEXTS_A_SEED} texts a seed: fixture statements, right and wrong, with one to four faults each "
    "(tokens and characters of every Unicode plane lost, doubled, swapped, put in; texts cut, spliced, nested).",
    seeds=range(200),
    check=_check,
)
