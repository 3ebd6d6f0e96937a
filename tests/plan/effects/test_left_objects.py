"""The notices about subscriptions and sessions that a move leaves on the former server."""

from __future__ import annotations

import pytest

from tests.plan.canned import CannedWorld
from tests.plan.tables import tables_world

PULSAR = "connector = 'pulsar', service.url = 'pulsar://old:6650', topic = 'orders', subscription.name = 'sub'"
MQTT = "connector = 'mqtt', url = 'tcp://old:1883', topic = 'plant', client_id = 'c1'"
UNDONE = "which keeps messages for it, so that this operation can be undone. When neither an UNDO nor another program "
OF_PULSAR = (
    f'subscription "sub" stays on topic persistent://public/default/orders at pulsar://old:6650, {UNDONE}'
    "needs it, run: pulsar-admin topics unsubscribe persistent://public/default/orders --subscription sub"
)
OF_MQTT = (
    f'session of client "c1" stays on broker tcp://old:1883, {UNDONE}'
    "needs it, run: mosquitto_sub -i c1 -t rw_sql -E, with the address and login of tcp://old:1883"
)


def world_of(*options: str) -> CannedWorld:
    return tables_world(
        *(f"CREATE SOURCE s{n} (id INT) WITH ({each}) FORMAT PLAIN ENCODE JSON" for n, each in enumerate(options))
    )


def left(world: CannedWorld, change: str, source: str = "s0") -> list[str]:
    """The notices of the preview about objects that stay."""
    preview = world.plan(f"ALTER SOURCE {source} UNSAFE SET ({change})").preview
    assert preview is not None
    return [notice for notice in preview.notices if " stays on " in notice]


@pytest.mark.parametrize(
    ("options", "change", "expected"),
    [
        (PULSAR, "topic = 'other'", [OF_PULSAR]),
        (PULSAR, "service.url = 'pulsar://new:6650'", [OF_PULSAR]),
        (PULSAR, "subscription.name = 'another'", [OF_PULSAR]),
        (PULSAR, "source_rate_limit = 5", []),
        (MQTT, "url = 'tcp://new:1883'", [OF_MQTT]),
        (MQTT, "client_id = 'c2'", [OF_MQTT]),
        (MQTT, "topic = 'other'", []),  # The session stays the same, and the reader unsubscribes from the topic.
    ],
)
def test_a_move_names_the_object_that_it_leaves(options: str, change: str, expected: list[str]) -> None:
    assert left(world_of(options), change) == expected


def test_an_undo_names_the_object_that_it_leaves() -> None:
    world = world_of(PULSAR)
    world.run("ALTER SOURCE s0 UNSAFE SET (topic = 'other')")
    preview = world.plan(f"UNDO OPERATION {world.operations[0].epoch}").preview
    assert preview is not None
    assert [notice for notice in preview.notices if " stays on " in notice] == [
        OF_PULSAR.replace("default/orders", "default/other")
    ]


def test_an_object_that_another_source_uses_is_not_left() -> None:
    assert left(world_of(PULSAR, PULSAR), "topic = 'other'") == []


def test_a_source_that_never_ran_leaves_nothing() -> None:
    world = world_of(PULSAR)
    world.run_number = 0
    assert left(world, "topic = 'other'") == []
