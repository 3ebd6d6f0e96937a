"""Changes of an input, applied to a view that filters and projects it, give the view of the changed rows."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from rw_sql.runtime.views.changed_rows import last_changes, with_removed

KEY = tuple[str | None, int | None]
INPUT = pa.schema([("a", pa.string()), ("b", pa.int32()), ("n", pa.int64())])
FEED = INPUT.append(pa.field("_change_type", pa.string())).append(pa.field("_commit_version", pa.int64()))
VIEW = pa.schema([("x", pa.string()), ("y", pa.int32()), ("twice", pa.int64())])


def feed_of(before: dict[KEY, int], after: dict[KEY, int], version: int) -> list[dict[str, Any]]:
    """The rows of the change feed of a commit."""

    def row(key: KEY, n: int, change: str) -> dict[str, Any]:
        return {"a": key[0], "b": key[1], "n": n, "_change_type": change, "_commit_version": version}

    rows = [row(key, n, "delete") for key, n in before.items() if key not in after]
    rows += [row(key, n, "insert") for key, n in after.items() if key not in before]
    for key, n in after.items():
        if before.get(key, n) != n:
            rows += [row(key, before[key], "update_preimage"), row(key, n, "update_postimage")]
    return rows


def test_random_commits_give_the_view_of_the_last_one(seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        now: dict[KEY, int] = {}
        view: dict[KEY, int] = {}
        for _ in range(6):
            rows: list[dict[str, Any]] = []
            for version in range(random.randint(1, 3)):
                then = dict(now)
                for _ in range(random.choice((0, 1, 8))):
                    key = (random.choice(("a", None)), random.choice((1, 2, None)))
                    then.pop(key, None)
                    if random.random() < 0.6:
                        then[key] = random.randint(-5, 5)
                rows += feed_of(now, then, version)
                now = then
            random.shuffle(rows)
            last = last_changes(pa.Table.from_pylist(rows, schema=FEED), ["a", "b"])
            read = [row for row in last.to_pylist() if row["_change_type"] != "delete" and row["n"] > 0]
            fresh = pa.Table.from_pylist([{"twice": 2 * row["n"], "x": row["a"], "y": row["b"]} for row in read])
            changed = last.select(["a", "b"]).rename_columns(["x", "y"])
            for row in with_removed(fresh, changed, VIEW).to_pylist():
                view.pop((row["x"], row["y"]), None)
                if row["_rw_keep"]:
                    view[row["x"], row["y"]] = row["twice"]
            assert view == {key: 2 * n for key, n in now.items() if n > 0}


def test_a_key_that_one_commit_deletes_and_adds_is_there() -> None:
    rows = feed_of({("a", 1): 3}, {}, 4) + feed_of({}, {("a", 1): 5}, 4)
    for given in (rows, rows[::-1]):
        last = last_changes(pa.Table.from_pylist(given, schema=FEED), ["a", "b"])
        assert last.select(["n", "_change_type"]).to_pylist() == [{"n": 5, "_change_type": "insert"}]
