"""Random moves of sources on a real broker, in one session. The rows that arrive match the predictions."""

from __future__ import annotations

import atexit
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from rw_sql.runtime.observe import upstream_watcher
from tests.integration.attached import AttachedSession
from tests.integration.injections import MovedSource, drawn

SCENARIOS = 200
A_SEED = 4
"""The number of scenarios per seed. After an interruption, at most the scenarios of one seed are repeated."""


@cache
def _session() -> AttachedSession:
    """The session of all seeds, which ends with this process."""
    upstream_watcher.DISCOVERY_SECONDS = 0.5
    ending = ExitStack()
    folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="injections-", ignore_cleanup_errors=True))
    session = ending.enter_context(attached(Path(folder)))
    session.allow_unsafe()
    atexit.register(ending.close)
    return session


def _check(number: int, folder: Path) -> Facts:
    session = _session()
    facts = {"scenarios": 0, "moves": 0, "rows read": 0, "duplicates": 0, "gaps": 0}

    for scenario in drawn(number, A_SEED):
        source = MovedSource(session, broker().bootstrap, folder, f"p{number}_{facts['scenarios']}", scenario)
        total = source.run()
        source.drop()
        facts["scenarios"] += 1
        facts["moves"] += total.moves
        facts["rows read"] += total.rows
        facts["duplicates"] += total.duplicates
        facts["gaps"] += total.gaps
    return facts


PROOF = Proof(
    name="injections",
    claim="A preview is right: the first record of every split, the duplicates and the gaps are those predicted.",
    method="Hypothesis draws random scenarios in one session: one to eight partitions of retained, compacted "
    "and transactional topics; all INJECT targets and file formats; RESET; topics that are created again or "
    "replaced by others; expired offsets; several moves in a row. After each move every row of the source is "
    "compared with a plain consumer's records: exactly the records from the predicted first one on have arrived. On "
    "retained topics, duplicates and gaps are those predicted; on the others, they are at most those predicted.",
    seeds=range(SCENARIOS // A_SEED),
    check=_check,
)
