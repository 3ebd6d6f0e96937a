"""Eight processes run 400 statements on one warehouse at once, and some of them are killed at random."""

from __future__ import annotations

import os
from pathlib import Path

from proof.harness import Facts, Proof
from tests.metastore.statement_crowd import KILLS, PROCESSES, STATEMENTS, Crowd, place


def _check(seed: int, folder: Path) -> Facts:
    with place(os.environ.get("RW_SQL_TEST_WAREHOUSE", "s3"), folder) as (warehouse, store):
        crowd = Crowd(folder=folder, warehouse=warehouse, seed=seed)
        crowd.run()
        facts = dict(crowd.check())
        if store is not None:
            from tests.support.s3_store import unconditional_commits

            requests = store.requests()
            commits = [request for request in requests if request.is_commit]
            assert commits
            assert not unconditional_commits(requests), unconditional_commits(requests)
            facts["requests to S3"] = len(requests)
            facts["conditional commits in S3"] = sum(request.status == 200 for request in commits)
            facts["of these refused, because another process was first"] = sum(
                request.status != 200 for request in commits
            )
        return facts


PROOF = Proof(
    name="statement-kills",
    claim="Processes that commit to one warehouse at once, and are killed, know the outcome of every statement.",
    method=f"{PROCESSES} processes without Spark run {STATEMENTS} statements each, at the same time and on one "
    "warehouse in a server that speaks S3 (moto): CREATE and DROP of secrets, connections and sources, and ALTER "
    "SYSTEM SET. Half of the names are shared, so that the order of the commits determines which statements take "
    f"effect and which are refused: because a name exists, is missing or is in use. {KILLS} times, SIGKILL ends a "
    "process at a random time. The process is started again at once, and finds out from the operations of the log "
    "whether its last statement took effect. Then every outcome is compared with a plain model, which replays the "
    "statements in the order of their epochs. A refusal must be true in a state between the epochs that its process "
    "saw before and after it. Each epoch is in the log once. The catalog, and the catalog that is read from the "
    "projections alone, equal a replay of the log and the model. No write of a commit is unconditional. "
    "`RW_SQL_TEST_WAREHOUSE=local` runs the same on a local disk.",
    seeds=range(2),
    check=_check,
)
