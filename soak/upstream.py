"""The upstream of a soak, and the rows that must have been read from it, which are computed without code of the
product."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Mapping

    from soak.readings import Readings

TOPICS = {"events": 3, "moved": 2}
"""The topics that the source reads in turn, each with its number of partitions."""

ACCOUNTS = "accounts"
KEYS = 13
CLASSES = 5
TOP = 5

Place = tuple[str, int, int]
"""A topic, a partition and an offset."""


def event(topic: str, partition: int, offset: int) -> dict[str, object]:
    """The record at a place."""
    return {"topic": topic, "k": (7 * offset + 5 * partition + len(topic)) % KEYS, "v": 3 * offset + partition}


@dataclass(slots=True)
class Upstream:
    """Two topics of events, a topic of updates and deletes of accounts, a topic of Avro records if there is a registry,
    and the rows that the product must have.

    ``times`` counts how often each event must be in the source's log. ``positions`` has the next offset to read of each
    topic and partition that has a position; a topic keeps its positions when the source moves to the other topic.
    """

    bootstrap: str
    draw: random.Random
    readings: Readings | None = None
    reads: str = "events"
    ends: dict[str, list[int]] = field(default_factory=lambda: {topic: [0] * n for topic, n in TOPICS.items()})
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    times: Counter[Place] = field(default_factory=Counter)
    accounts: dict[int, int] = field(default_factory=dict)

    def create(self) -> None:
        """Creates the topics."""
        for topic, partitions in TOPICS.items():
            create_topic(self.bootstrap, topic, partitions)
        create_topic(self.bootstrap, ACCOUNTS, 2)

    def grow(self, rows: int) -> None:
        """Appends about ``rows`` events, a tenth as many updates and deletes of accounts, and a tenth as many Avro
        records. The broker and the registry must answer."""
        topic = self.reads if self.draw.random() < 0.8 else self.draw.choice(list(TOPICS))
        ends = self.ends[topic]
        for partition, end in enumerate(ends):
            more = self.draw.randrange(1, 1 + 2 * rows // len(ends))
            places = ((topic, partition, offset) for offset in range(end, end + more))
            produce(
                self.bootstrap,
                topic,
                [Record(value=json.dumps(event(*place)).encode(), partition=partition) for place in places],
            )
            ends[partition] = end + more
        updates = []
        for _ in range(max(1, rows // 10)):
            account = self.draw.randrange(200)
            if self.draw.random() < 0.2:
                self.accounts.pop(account, None)
                value = None
            else:
                self.accounts[account] = self.draw.randrange(1000)
                value = json.dumps({"id": account, "v": self.accounts[account]}).encode()
            key = json.dumps({"id": account}).encode()
            updates.append(Record(key=key, value=value, partition=account % 2))
        produce(self.bootstrap, ACCOUNTS, updates)
        if self.readings is not None:
            self.readings.grow(max(1, rows // 10))

    def read(self) -> None:
        """Counts the events that the product has read when it has caught up, and moves the positions to the ends."""
        for partition, end in enumerate(self.ends[self.reads]):
            start = self.positions.get((self.reads, partition), 0)
            self.times.update((self.reads, partition, offset) for offset in range(start, end))
            self.positions[self.reads, partition] = end

    def expected_views(self) -> Mapping[str, Counter[tuple[object, ...]]]:
        """The rows that the table and each view must contain, each with its number of occurrences."""
        groups: dict[int, list[int]] = {}
        thirds: Counter[tuple[object, ...]] = Counter()
        for place, times in self.times.items():
            row = event(*place)
            k, v = row["k"], row["v"]
            assert isinstance(k, int)
            assert isinstance(v, int)
            group = groups.setdefault(k, [0, 0])
            group[0] += times
            group[1] += v * times
            if v % 3 == 0:
                thirds[*place, v] += times
        classes: dict[int, list[int]] = {}
        for account, v in self.accounts.items():
            found = classes.setdefault(account % CLASSES, [0, 0])
            found[0] += 1
            found[1] += v
        top = sorted(((v, account) for account, v in self.accounts.items()), key=lambda row: (-row[0], row[1]))[:TOP]
        expected: dict[str, Counter[tuple[object, ...]]] = {
            "all_events": Counter({(*place,): times for place, times in self.times.items()}),
            "per_key": Counter((k, n, total) for k, (n, total) in groups.items()),
            "thirds": thirds,
            "accounts": Counter(self.accounts.items()),
            "classes": Counter((number, n, total) for number, (n, total) in classes.items()),
            "highest": Counter(top),
        }
        if self.readings is not None:
            expected["every_reading"] = self.readings.expected()
        return expected
