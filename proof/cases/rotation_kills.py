"""Kills between any two steps of ALTER CONNECTION and ALTER SECRET. Afterwards, either all dependents use the old
credentials, or all dependents use the new credentials."""

from __future__ import annotations

import random
from pathlib import Path

from proof.harness import Facts, Proof
from tests.crash.rotation import AFTER, BEFORE, CONNECTION, SECRET, Rotation, RotationKill
from tests.support.secured import running_secured_broker

_KILLS_A_SEED = 6
_PAIRS = [(alters, point) for alters in (CONNECTION, SECRET) for point in (*BEFORE, *AFTER)]
DEALT = -(-len(_PAIRS) // _KILLS_A_SEED)


def _check(seed: int, folder: Path) -> Facts:
    pairs = random.Random(seed // DEALT).sample(_PAIRS, len(_PAIRS))[seed % DEALT :: DEALT]
    dice = random.Random(seed)
    kills = [RotationKill(alters=alters, point=point, kills=dice.choice(["python", "both"])) for alters, point in pairs]
    (folder / "rotation").mkdir()
    with running_secured_broker(folder / "secured") as secured:
        return Rotation(folder / "rotation", secured, seed=seed).run(kills)


PROOF = Proof(
    name="rotation-kills",
    claim="If a process is killed while it changes credentials, all dependents use the new ones or all the old ones.",
    method=f"Two sources and a sink use one connection to a broker with SCRAM and TLS. {len(_PAIRS)} pairs of a "
    "statement (ALTER CONNECTION, ALTER SECRET) and a point between two of its steps are tried, each once in "
    f"{DEALT} seeds. Each kill ends Python alone, or Python and its JVM. If the kill was before the commit, the "
    "broker then accepts only the old credentials, otherwise only the new ones. The next process must read every "
    "row exactly once, and its sink must write every row.",
    seeds=range(DEALT),
    check=_check,
)
