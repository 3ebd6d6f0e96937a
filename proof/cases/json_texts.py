"""Random valid and invalid JSON texts, compared with strict readers in Python and Jackson."""

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
    claim="A value of ENCODE JSON becomes either a correct row or an error; nothing is dropped, no digit is lost.",
    method=(
        f"{TEXTS_A_SEED} texts are read per seed: rows of ten columns with nested values, names in upper and lower "
        "case, duplicate names, huge numbers and unusual escapes. Nearly half of the texts have a fault: parts that "
        "are doubled, cut off or spliced, trailing tokens, wrong quotes, NUL and control characters, a byte-order "
        "mark, invalid UTF-8, or syntax that lenient parsers accept. Spark decodes each text as in a source's batch; "
        "the result must equal that of a reader in plain Python that uses `json.loads`. rw_sql must accept exactly "
        "those texts as JSON that Jackson's `ObjectMapper` with `FAIL_ON_TRAILING_TOKENS` accepts."
    ),
    seeds=range(20),
    check=_check,
)
