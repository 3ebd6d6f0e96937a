"""The parser converts any text quickly to statements or to an error with a code. The canonical text of the statements
has the same meaning as the text."""

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
    claim="Every text is parsed into statements or causes an error with a code and a position, never a traceback; no "
    "text of less than 10 kB takes more than 100 ms; the canonical text of a statement has the same meaning.",
    method=(
        f"{TEXTS_A_SEED} texts are parsed per seed: valid and invalid statements of the fixtures, to each of which the "
        "test adds one to four mistakes. A mistake removes, doubles, swaps or inserts a token or a character (of any "
        "Unicode plane), or cuts, splices or nests texts."
    ),
    seeds=range(200),
    check=_check,
)
