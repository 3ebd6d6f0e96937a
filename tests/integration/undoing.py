"""Random operations on a live source, which are undone in reverse order. Each undo must restore the state before its
operation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.codec import before_from_json
from rw_sql.metastore.records import DISCOVERY, FORGOTTEN, PauseRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.warehouse import Warehouse
from tests.integration.attached import produce_json

if TYPE_CHECKING:
    from rw_sql.connectors.base import SplitState
    from rw_sql.metastore.records import OperationRecord
    from tests.integration.attached import AttachedSession

RECORDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """The state before an operation, as far as an undo restores it.

    ``states`` are the positions that the reader has reached, and ``given`` are the positions that statements have set.
    """

    definition: str
    options: tuple[tuple[str, str], ...]
    assigned: frozenset[str]
    states: Mapping[str, SplitState]
    given: Mapping[str, SplitState]
    forgotten: frozenset[str]
    holds: frozenset[int | None]


def met(warehouse: str) -> Met:
    """The present state of source ``s``."""
    metastore = Metastore.open(warehouse)
    snapshot = metastore.snapshot()
    source = snapshot.find("source", "s")
    assert source is not None
    fragment = ingest_fragment(source.id)
    stored = snapshot.states(fragment)
    pauses = [record for record in snapshot.all("pause") if isinstance(record, PauseRecord)]
    return Met(
        definition=source.definition,
        options=source.options,
        assigned=frozenset(snapshot.splits(fragment)),
        states=read_positions(Warehouse.at(warehouse), metastore, snapshot, source).states,
        given={
            split: connector(source.connector).decode_state(split, row.state)
            for split, row in stored.items()
            if row.state != FORGOTTEN
        },
        forgotten=frozenset(split for split, row in stored.items() if row.state == FORGOTTEN),
        holds=frozenset(record.source_id for record in pauses),
    )


def statements_of(lot: random.Random, topics: tuple[str, str]) -> tuple[str, ...]:
    """The statements of one operation, which is a single statement or a whole block."""
    inject = f"INJECT SOURCE OFFSETS s VALUES ('0' = {lot.randrange(RECORDS)}) ALLOW CLAMP"
    move = f"ALTER SOURCE s UNSAFE SET (topic = '{lot.choice(topics)}')"
    single = lot.choice(
        [
            inject,
            move,
            f"INJECT SOURCE OFFSETS s TO SHIFT {lot.randrange(-5, 0)} ALLOW CLAMP",
            "ALTER SOURCE s UNSAFE SET (group.id.prefix = 'mine')",
            "ALTER SOURCE s UNSAFE SET (scan.startup.mode = 'latest')",
            "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
            "RESET SOURCE SPLITS s FOR SPLITS ('1') WITH (FORGET_OFFSETS = true)",
            "RESET SOURCE SPLITS s",
            "PAUSE SOURCE s",
            "RESUME SOURCE s",
        ]
    )
    block = ("BEGIN UNSAFE", "PAUSE SOURCE s", move, "RESET SOURCE SPLITS s", inject, "RESUME SOURCE s", "COMMIT")
    return block if lot.random() < 0.25 else (single,)


def undo_all(session: AttachedSession, bootstrap: str, mark: str, *, seed: int, length: int) -> Mapping[str, int]:
    """Runs one sequence. Raises AssertionError if an undo does not restore the state before its operation."""
    lot = random.Random(seed)
    topics = (f"{mark}.a", f"{mark}.b")
    for topic in topics:
        create_topic(bootstrap, topic, 2)
        for partition in (0, 1):
            produce_json(bootstrap, topic, [{"id": at} for at in range(RECORDS)], partition)
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topics[0]}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
        "FLUSH",
    )
    began, refused = session.epoch(), 0
    before: dict[int, Met] = {}
    while len(before) < length:
        if lot.random() < 0.3:
            produce_json(bootstrap, lot.choice(topics), [{"id": 100}], lot.randrange(2))
            session.run("FLUSH")
        now = met(session.warehouse)
        try:
            session.run(*statements_of(lot, topics))
        except SqlError:
            refused += 1
            if session.attached.block_state is not None:
                session.run("ROLLBACK")
        operations = [row for row in operations_since(session, began) if row.epoch not in before]
        before |= {row.epoch: now for row in operations}
        session.run("FLUSH")
    for record in reversed(operations_since(session, began)):
        session.run(f"UNDO OPERATION {record.epoch}")
        back, then = met(session.warehouse), before[record.epoch]
        told = f"seed {seed}, UNDO OPERATION {record.epoch} ({record.kind})"
        assert (back.definition, back.options) == (then.definition, then.options), told
        assert (back.assigned, back.forgotten, back.holds) == (then.assigned, then.forgotten, then.holds), told
        touched = {split for of in before_from_json(record.before).states.values() for split in of}
        for split in touched:
            assert back.given.get(split) == then.states.get(split), f"{told}: {split}"
    return {"operations undone": len(before), "refused": refused}


def operations_since(session: AttachedSession, epoch: int) -> list[OperationRecord]:
    """The operations after an epoch, oldest first, without the owner's discoveries."""
    found = Metastore.open(session.warehouse).operations(since=epoch + 1)
    return [record for record in reversed(found) if record.kind != DISCOVERY]
