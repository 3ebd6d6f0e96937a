"""A commit of a change feed is divided by the keys of its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from rw_sql.runtime.delta.feed_files import divided_files, is_read_in_part, undivided_bytes
from rw_sql.runtime.positions.feed_keys import HASHES, FeedByKey, KeyRange, hash_after, hashed_keys
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

Action = dict[str, Any]


def add(size: int = 10, **more: object) -> Action:
    return {"add": {"path": "a", "size": size, "dataChange": True, **more}}


def remove(size: int | None = 10, **more: object) -> Action:
    return {"remove": {"path": "r", "size": size, "dataChange": True, **more}}


CDC: Action = {"cdc": {"path": "c", "size": 10, "dataChange": False}}
MAP: Any = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
INFO: Action = {"commitInfo": {"operation": "WRITE"}}


def array(of: Any) -> Any:
    return {"type": "array", "elementType": of, "containsNull": True}


def struct(*of: Any) -> Any:
    fields = [{"name": f"f{at}", "type": kind, "nullable": True, "metadata": {}} for at, kind in enumerate(of)]
    return {"type": "struct", "fields": fields}


@dataclass(slots=True)
class Feed:
    """A table with a change feed, and the checkpoint of a query that reads it."""

    warehouse: Warehouse
    commits: list[list[Action]] = field(default_factory=list)
    batches: int = 0

    @property
    def by_key(self) -> FeedByKey:
        return FeedByKey(
            warehouse=self.warehouse,
            path=f"{self.warehouse.uri}/t",
            checkpoint=f"{self.warehouse.uri}/c",
            keys=("id",),
            select=lambda rows: rows,
        )

    def commit(self, *actions: Action) -> None:
        path = f"{self.warehouse.uri}/t/_delta_log/{len(self.commits):020d}.json"
        self.warehouse.write_text(path, "\n".join(map(json.dumps, actions)))
        self.commits.append(list(actions))

    def plan(self, version: int, index: int = -1, *, is_snapshot: bool = False) -> int:
        """Plans the next batch; returns its number."""
        offset = {"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": is_snapshot}
        text = f"v1\n{{}}\n{json.dumps(offset)}"
        self.warehouse.write_text(f"{self.warehouse.uri}/c/offsets/{self.batches}", text)
        self.batches += 1
        return self.batches - 1


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(Warehouse.at(str(tmp_path)))


def test_a_commit_is_divided_only_if_its_files_are_its_changes() -> None:
    compacted = add(5, dataChange=False), remove(6, dataChange=False)
    assert divided_files([INFO, add(1), *compacted, remove(2), remove(None)]) == (1, 2, 0)
    assert divided_files([INFO]) == ()
    assert divided_files([add(1), CDC, remove(2)]) is None
    assert divided_files([add(1, deletionVector={"storageType": "u"}), remove(2)]) is None
    assert divided_files([add(1), remove(2, deletionVector={"storageType": "u"})]) is None


def test_the_size_of_a_commit_that_is_read_as_a_whole_is_that_of_its_changes() -> None:
    half = {"deletionVector": {"cardinality": 5}, "stats": json.dumps({"numRecords": 10})}
    assert undivided_bytes([add(100), remove(100)]) == 0
    assert undivided_bytes([add(100), remove(100), CDC, CDC]) == 20
    # Of a rewritten file with a deletion vector, only the deleted rows are changes.
    assert undivided_bytes([add(100, **half), {"remove": {"path": "a", "size": 100}}, remove(7)]) == 57
    assert undivided_bytes([add(100, deletionVector={"cardinality": 5}), add(3)]) == 103


def test_the_last_file_of_a_commit_ends_it() -> None:
    actions = [add(), add(), remove()]
    assert [is_read_in_part(actions, index) for index in range(-1, 3)] == [False, True, True, False]
    assert not is_read_in_part([*actions, CDC], 0)


def test_the_hashes_of_a_part_are_in_proportion_to_its_files() -> None:
    assert [hash_after((9, 19, 9), index) for index in (-1, 0, 1, 2)] == [0, HASHES // 4, 3 * HASHES // 4, HASHES]
    assert [hash_after((0, 0), index) for index in (-1, 0, 1)] == [0, HASHES // 2, HASHES]


def test_a_batch_of_whole_commits_is_read_as_delta_reads_it(feed: Feed) -> None:
    feed.commit(add(), add())
    feed.commit(CDC, CDC, add(), remove())
    feed.commit(add(), remove())
    for batch in (feed.plan(0, 1, is_snapshot=True), feed.plan(1, 1), feed.plan(3)):
        assert feed.by_key.divided(batch) == ([], True)
    assert not feed.warehouse.exists(f"{feed.warehouse.uri}/c/feed_keys")


def test_each_key_of_a_divided_commit_is_read_in_one_batch(feed: Feed) -> None:
    feed.commit(add())
    feed.commit(*(add(9) for _ in range(3)), remove(9))
    feed.commit(CDC)
    feed.commit(remove(9), add(9))
    quarter = HASHES // 4
    assert feed.by_key.divided(feed.plan(1, 0)) == ([KeyRange(version=1, low=0, high=quarter)], True)
    assert feed.by_key.divided(feed.plan(1, 2)) == ([KeyRange(version=1, low=quarter, high=3 * quarter)], False)
    last = KeyRange(version=1, low=3 * quarter, high=HASHES)
    assert feed.by_key.divided(feed.plan(2)) == ([last], False)
    assert feed.by_key.divided(feed.plan(2, 0)) == ([], True)
    assert feed.by_key.divided(feed.plan(3, 0)) == ([KeyRange(version=3, low=0, high=2 * quarter)], True)


def test_a_batch_may_read_the_rest_of_a_commit_and_a_part_of_the_next(feed: Feed) -> None:
    feed.commit(add(9), remove(9))
    feed.commit(add(9), remove(9))
    feed.commit(CDC)
    feed.plan(0, 0)
    feed.by_key.divided(0)
    half = HASHES // 2
    rest, part = KeyRange(version=0, low=half, high=HASHES), KeyRange(version=1, low=0, high=half)
    assert feed.by_key.divided(feed.plan(1, 0)) == ([rest, part], False)
    # A commit with change files is read as a whole.
    assert feed.by_key.divided(feed.plan(2, 0)) == ([KeyRange(version=1, low=half, high=HASHES)], True)


def test_a_commit_that_an_older_version_has_begun_is_read_from_its_first_key(feed: Feed) -> None:
    feed.commit(*(add(9) for _ in range(4)))
    feed.plan(0, 0)
    feed.plan(0, 1)  # The older version has read both batches, and this version has planned none of them.
    middle, end = HASHES // 4 * 3, HASHES
    assert feed.by_key.divided(feed.plan(0, 2)) == ([KeyRange(version=0, low=0, high=middle)], False)
    assert feed.by_key.divided(2) == ([KeyRange(version=0, low=0, high=middle)], False)
    assert feed.by_key.divided(feed.plan(1)) == ([KeyRange(version=0, low=middle, high=end)], False)


def test_every_hash_of_every_commit_is_read_once(feed: Feed) -> None:
    random = Random(4)
    for _ in range(60):
        files = [random.choice((add, remove))(random.randint(0, 50)) for _ in range(random.randint(0, 9))]
        feed.commit(INFO, *files, *([CDC] if random.random() < 0.2 else []))
    places = [
        (version, index)
        for version, actions in enumerate(feed.commits)
        for index in (-1, *range(len(divided_files(actions) or ()) - 1))
    ]
    ends = [place for place in places if random.random() < 0.6 and place > (0, -1)]
    read: dict[int, int] = {}
    for version, index in [*ends, (len(feed.commits), -1)]:
        batch = feed.plan(version, index)
        found, _ = feed.by_key.divided(batch)
        assert feed.by_key.divided(batch)[0] == found
        for part in found:
            assert read.get(part.version, 0) == part.low
            read[part.version] = part.high
    assert set(read.values()) == {HASHES}
    assert len(read) > 20


def test_only_a_large_commit_is_read_in_parts(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_keys(_: FeedByKey, rows: Any, low: int, high: int) -> Any:
        return rows, low, high

    monkeypatch.setattr(FeedByKey, "_of_keys", of_keys)
    rows: Any = "rows"
    quarter = HASHES // 4
    quarters = [(rows, at * quarter, (at + 1) * quarter) for at in range(4)]
    feed.commit(*[CDC] * 4)
    feed.commit(INFO)
    feed.commit(*[CDC] * 4)
    feed.commit(add(100, deletionVector={"cardinality": 5}), CDC)
    feed.commit(*(add() for _ in range(9)))

    def parts(version: int, index: int = -1) -> Any:
        return feed.by_key.parts(rows, feed.plan(version, index), 10)

    assert parts(0, 3) == quarters
    assert parts(2) == [rows]  # The commit 0 is in the batch before.
    assert parts(2, 3) == quarters
    assert parts(4) == [rows]
    # Delta divides the last commit.
    assert parts(4, 2) == [rows]
    assert parts(5) == [rows]


def test_a_first_batch_may_be_a_large_commit(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedByKey, "_of_keys", lambda _, rows, low, high: (low, high))
    feed.commit(INFO)
    feed.commit(*[CDC] * 2)
    rows: Any = "rows"
    found: Any = feed.by_key.parts(rows, feed.plan(1, 1), 10)
    assert found == [(0, HASHES // 2), (HASHES // 2, HASHES)]


def test_the_batches_of_a_snapshot_are_not_divided(feed: Feed) -> None:
    feed.commit(*[CDC] * 4)
    rows: Any = "rows"
    assert feed.by_key.parts(rows, feed.plan(0, 1, is_snapshot=True), 10) == [rows]
    assert feed.by_key.parts(rows, feed.plan(1), 10) == [rows]


def test_a_first_batch_with_the_whole_snapshot_is_not_divided(feed: Feed) -> None:
    feed.commit(*[CDC] * 4)
    rows: Any = "rows"
    whole = replace(feed.by_key, begins_with_snapshot=True)
    assert whole.parts(rows, feed.plan(1), 10) == [rows]


def test_keys_that_spark_cannot_hash_do_not_divide_a_commit() -> None:
    fields = {"id": "integer", "tags": MAP, "all": array(MAP), "inner": struct(struct(MAP)), "v": "variant",
              "names": array("string"), "place": struct("double")}  # fmt: skip
    schema = StructType.fromJson(struct(*fields.values()))
    for field_, name in zip(schema.fields, fields, strict=True):
        field_.name = name
    assert hashed_keys(schema, list(fields)) == ["id", "names", "place"]
    assert hashed_keys(schema, ["tags"]) == []
