"""Random Avro schemas in several versions, records that are written by each version, and the values of these records as
Avro's own library reads them."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.schemas import avro
from rw_sql.connectors.schemas.logical_types import decimal_of, logical_of
from tests.support.avro_records import decoded, encoded

if TYPE_CHECKING:
    from random import Random

EPOCH = datetime.datetime(1970, 1, 1)
_WORDS = ("", "a", "Zürich", "日本", "x" * 40, "\n", '"', "\u0000", "😀")
_PARTS: dict[str, Any] = {"array": {"type": "array", "items": "int"}, "map": {"type": "map", "values": "string"}}
_WIDE = {"logicalType": "decimal", "precision": 20, "scale": 0}
_UNIONS = (("long", "string"), ("boolean", "double", "bytes"), ("string", "array"), ("long", "map"))


@dataclass(slots=True)
class Evolving:
    """The versions of a record schema. A record of any version can be read by any other version."""

    rng: Random
    names: int = 0
    versions: list[dict[str, Any]] = field(default_factory=list)

    def grow(self, versions: int) -> list[dict[str, Any]]:
        """Adds this number of versions. Returns all versions, oldest first."""
        base = [self._field(is_needed=True) for _ in range(self.rng.randint(1, 4))]
        more = [self._field(is_needed=False) for _ in range(self.rng.randint(2, 6))]
        for _ in range(versions):
            kept = [each for each in more if self.rng.random() < 0.7]
            fields = [self._varied(each) for each in (*base, *kept)]
            self.rng.shuffle(fields)
            self.versions.append({"type": "record", "name": "Top", "namespace": "some.space", "fields": fields})
        return self.versions

    def _name(self, what: str) -> str:
        self.names += 1
        return f"{what}{self.names}"

    def _field(self, *, is_needed: bool) -> dict[str, Any]:
        kind = self._kind(depth=2)
        made: dict[str, Any] = {"name": self._name("f"), "type": kind}
        if is_needed:
            return made
        if isinstance(kind, str) and self.rng.random() < 0.5:
            defaults: dict[str, Any] = {"boolean": True, "int": -3, "long": 2**40, "float": 0.5, "double": -1.25}
            return {**made, "default": defaults.get(kind, "d")}
        if isinstance(kind, dict) and kind["type"] in ("array", "map") and self.rng.random() < 0.5:
            return {**made, "default": [] if kind["type"] == "array" else {}}
        branches = [branch for branch in (kind if isinstance(kind, list) else [kind]) if branch != "null"]
        return {**made, "type": ["null", *branches], "default": None}

    def _varied(self, each: dict[str, Any]) -> dict[str, Any]:
        """The field in another version of the schema: a timestamp may have another unit of time."""
        kind = each["type"]
        if isinstance(kind, dict) and logical_of(kind) in ("timestamp-millis", "timestamp-micros"):
            unit = self.rng.choice(("millis", "micros"))
            return {**each, "type": {"type": "long", "logicalType": f"timestamp-{unit}"}}
        return each

    def _kind(self, depth: int) -> Any:
        roll = self.rng.random()
        if depth and roll < 0.12:
            return {"type": "array", "items": self._kind(depth - 1)}
        if depth and roll < 0.22:
            return {"type": "map", "values": self._kind(depth - 1)}
        if depth and roll < 0.34:
            fields = [{"name": self._name("g"), "type": self._kind(depth - 1)} for _ in range(self.rng.randint(1, 3))]
            return {"type": "record", "name": self._name("R"), "fields": fields}
        if depth and roll < 0.44:
            inner = self._kind(depth - 1)
            return inner if isinstance(inner, list) else ["null", inner]
        if depth and roll < 0.5:
            chosen = self.rng.choice(_UNIONS)
            parts: dict[str, Any] = {
                "array": {"type": "array", "items": "int"},
                "map": {"type": "map", "values": "string"},
            }
            return ["null", *(parts.get(name, name) for name in chosen)]
        return self.rng.choice(
            (
                *("boolean", "int", "long", "float", "double", "string", "bytes"),
                {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "C"]},
                {"type": "fixed", "name": self._name("X"), "size": 3},
                {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
                {
                    "type": "fixed",
                    "name": self._name("D"),
                    "size": 9,
                    "logicalType": "decimal",
                    "precision": 20,
                    "scale": 0,
                },
                {"type": "int", "logicalType": "date"},
                {"type": "int", "logicalType": "time-millis"},
                {"type": "long", "logicalType": "time-micros"},
                {"type": "long", "logicalType": "timestamp-millis"},
                {"type": "long", "logicalType": "timestamp-micros"},
                {"type": "long", "logicalType": "local-timestamp-micros"},
                {"type": "string", "logicalType": "uuid"},
            )
        )


def value_of(rng: Random, kind: Any) -> Any:
    """A random value of a type."""
    if isinstance(kind, list):
        return value_of(rng, rng.choice(kind))
    name = kind if isinstance(kind, str) else kind["type"]
    match logical_of(kind), name:
        case "decimal", _:
            digits, scale = decimal_of(kind) or (0, 0)
            return Decimal(rng.choice((0, 1, -1, 10**digits - 1, rng.randint(-(10**8), 10**8)))).scaleb(-scale)
        case "date", _:
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=rng.choice((0, -1, -500_000, 900_000, 20_000)))
        case (("time-millis" | "time-micros"), _):
            millis = rng.choice((0, 1, 86_399_999, rng.randrange(86_400_000)))
            micros = rng.randrange(1000) if name == "long" else 0
            return (EPOCH + datetime.timedelta(milliseconds=millis, microseconds=micros)).time()
        case (("timestamp-millis" | "timestamp-micros"), _):
            millis = rng.choice((0, -1, -62_000_000_000_000, 200_000_000_000_000, rng.randrange(2 * 10**12)))
            return EPOCH.replace(tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=millis)
        case "local-timestamp-micros", _:
            return EPOCH + datetime.timedelta(microseconds=rng.randrange(-(10**15), 2 * 10**15))
        case "uuid", _:
            return uuid.UUID(int=rng.getrandbits(128))
        case _, "null":
            return None
        case _, "boolean":
            return rng.random() < 0.5
        case _, "int":
            return rng.choice((0, -1, 2**31 - 1, -(2**31), rng.randrange(1000)))
        case _, "long":
            return rng.choice((0, -1, 2**63 - 1, -(2**63), rng.randrange(10**12)))
        case _, ("float" | "double"):
            return rng.choice((0.0, -1.5, 2.0**-20, 65536.25, float(rng.randrange(1000))))
        case _, "string":
            return rng.choice(_WORDS)
        case _, "bytes":
            return rng.randbytes(rng.randrange(6))
        case _, "fixed":
            return rng.randbytes(kind["size"])
        case _, "enum":
            return rng.choice(kind["symbols"])
        case _, "array":
            return [value_of(rng, kind["items"]) for _ in range(rng.randrange(4))]
        case _, "map":
            return {f"k{at}": value_of(rng, kind["values"]) for at in range(rng.randrange(4))}
        case _, "record":
            return {each["name"]: value_of(rng, each["type"]) for each in kind["fields"]}
    raise ValueError(f"no value of {kind}")


def as_column(value: Any, kind: Any) -> Any:
    """The value that Arrow returns for the column, computed from the value that Avro's library returns."""
    if isinstance(kind, list):
        real = [branch for branch in kind if branch != "null"]
        if value is None or len(real) == 1:
            return None if value is None else as_column(value, real[0])
        mine = next(branch for branch in real if _is_of(value, avro.branch_name(branch)))
        return {avro.branch_name(each): as_column(value, each) if each is mine else None for each in real}
    name = kind if isinstance(kind, str) else kind["type"]
    match name:
        case "record":
            return {each["name"]: as_column(value[each["name"]], each["type"]) for each in kind["fields"]}
        case "array":
            return [as_column(item, kind["items"]) for item in value]
        case "map":
            return sorted((key, as_column(item, kind["values"])) for key, item in value.items())
        case "bytes" | "fixed" if isinstance(value, str):
            # The library returns the default of a missing field as the schema has it: one character for each byte.
            return value.encode("iso-8859-1")
    if isinstance(value, datetime.time):
        return value.isoformat().rstrip("0") if value.microsecond else value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    return value


def _is_of(value: Any, name: str) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "boolean": bool, "long": int, "double": float, "string": str, "bytes": bytes, "array": list, "map": dict,
    }  # fmt: skip
    return isinstance(value, kinds[name]) and (name == "boolean" or not isinstance(value, bool))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A written record. The fields are the version of the schema with which the record was written, the record's bytes,
    and the row that a reader with the reader's version gets."""

    version: int
    data: bytes
    row: dict[str, Any]


def written_records(rng: Random, versions: list[dict[str, Any]], reader: dict[str, Any], count: int) -> list[Written]:
    """Records by random versions, with their values as Avro's own library reads them."""
    made = []
    for _ in range(count):
        at = rng.randrange(len(versions))
        data = encoded(versions[at], value_of(rng, versions[at]))
        made.append(Written(version=at, data=data, row=as_column(decoded(data, versions[at], reader), reader)))
    return made
