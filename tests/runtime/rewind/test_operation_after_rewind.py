"""An unsafe operation that is committed between a REWIND and its execution gets a rewind point of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runtime.rewind.test_rewind import inject, made, moved_back, require

if TYPE_CHECKING:
    from pathlib import Path


def test_an_operation_before_the_rewind_is_carried_out_can_be_rewound_too(tmp_path: Path) -> None:
    mini = made(tmp_path / "warehouse")
    operation = moved_back(mini)
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    rewind = mini.epoch()
    later = inject(mini, 4)
    mini.settle()
    require(mini, list(range(10)))
    points = {point.operation: point for point in mini.context.metastore.jobs.rewind_points(mini.source.id)}
    assert {rewind, later} <= points.keys()
    assert points[later].reason is None
    assert points[later].log_version > points[rewind].log_version
    mini.run("RESUME SOURCE s")
    mini.ingest(3, 4)
    mini.read_views()
    require(mini, [*range(10), *range(4, 11)])
    mini.run(f"REWIND SOURCE s TO OPERATION {later}")
    mini.settle()
    require(mini, list(range(10)))
    mini.ingest(2)
    mini.read_views()
    require(mini, list(range(12)))
