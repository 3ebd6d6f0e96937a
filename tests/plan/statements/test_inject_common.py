"""Offsets beyond the ends that INJECT has seen of an upstream that grows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.plan.statements.inject_common import grown_ends
from tests.plan.canned import HERE, CannedWorld


@pytest.mark.parametrize(
    ("before", "now", "is_grown"), [("T", "T", True), ("T", None, True), (None, "T", True), ("T", "U", False)]
)
def test_an_upstream_has_grown_although_its_identity_became_known_or_unknown(
    before: str | None, now: str | None, is_grown: bool
) -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    (seen,) = world.topics[HERE, "t"]
    world.topics[HERE, "t"] = (replace(seen, end=20, incarnation=now),)
    options = (("properties.bootstrap.server", HERE), ("topic", "t"))
    seen = replace(seen, incarnation=before)
    found = grown_ends(world.inspector, "kafka", options, {"t:0": 15}, {"t:0": seen})
    assert found == ({"t:0": 10} if is_grown else {})
