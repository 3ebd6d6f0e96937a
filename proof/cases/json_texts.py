"""Random JSON texts, right and wrong, against Python's and Jackson's strict reading."""

from __future__ import annotations

from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import spark
from tests.integration.json_reference import compare

TEXTS_A_SEED = 250


def _check(seed: int, folder: Path) -> Facts:
    return {"texts": TEXTS_A_SEED, **compare(spark(), seed, TEXTS_A_SEED)}


PROOF = Proof(
    name="json-texts",
    claim="A value of ENCODE JSON is one of a right row and an error; nothing is dropped, no digit lost.",
    method=f"{TEXTS_A_SEED} texts a seed: rows of ten columns, nested, in several cases, with duplicates, huge "
    "numbers and odd escapes; nearly half of them with a fault (doubled, cut, spliced, trailing tokens, quotes, NUL "
    "and control characters, BOM, no UTF-8, what lenient parsers take). Each is decoded by Spark as a source's batch "
    "is, and must be what a reader in plain Python on top of `json.loads` says; whether it is JSON at all must be the "
    "same to Jackson's `ObjectMapper` with `FAIL_ON_TRAILING_TOKENS`.",
    seeds=range(20),
    check=_check,
)
