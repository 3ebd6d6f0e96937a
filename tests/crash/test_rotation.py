"""A process is killed while it changes credentials: then all dependents run with the new ones, or all with the old."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.kills import POINTS, SINK_POINTS
from tests.crash.rotation import AFTER, BEFORE, CONNECTION, SECRET, Rotation, RotationKill
from tests.support.seeds import one_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.secured import Secured


KILLS = (
    # The catalog has the change; no job has read it.
    RotationKill(alters=CONNECTION, point="metastore.after_append"),
    # One of three jobs runs with the new value, the others are being stopped.
    RotationKill(alters=SECRET, point="reconciler.after_start"),
)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
def test_all_dependents_run_on_one_side(spark: SparkSession, secured: Secured, tmp_path: Path, seed: int) -> None:
    """One of the kills, drawn by the commit; the proof ``rotation-kills`` covers all points."""
    kills = one_of([KILLS], seed)
    rotation = Rotation(tmp_path, secured, spark=spark)
    facts = rotation.run(kills)
    assert facts["processes killed"] == len(kills)
    assert rotation.pauses.drawn == ["an hour later"]


def test_the_points_are_those_that_there_are() -> None:
    assert {*BEFORE, *AFTER} <= {*POINTS, *SINK_POINTS}
    of_statements_and_jobs = ("statement.", "metastore.", "reconciler.", "fence.", "ingest.", "sink.")
    others = {
        point for point in {*POINTS, *SINK_POINTS} - {*BEFORE, *AFTER} if point.startswith(of_statements_and_jobs)
    }
    within_batches = {"ingest.in_batch", "sink.in_batch", "sink.after_write", "sink.after_batch"}
    assert others == within_batches
