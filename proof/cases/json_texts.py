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
        f"{TEXTS_A_SEED} texts are read per seed: rows of ten columns, nested, in several cases, with duplicates, huge "
        "numbers and unusual escapes. Nearly half of them have a fault (doubled, cut, spliced, trailing tokens, "
        "quotes, NUL and control characters, BOM, invalid UTF-8, syntax that lenient parsers accept). Spark decodes "
        "each text as in a source's batch; the result must equal that of a reader in plain Python over `json.loads`. "
        "Whether a text is JSON at all must agree with Jackson's `ObjectMapper` with `FAIL_ON_TRAILING_TOKENS`."
    ),
    seeds=range(20),
    check=_check,
)
