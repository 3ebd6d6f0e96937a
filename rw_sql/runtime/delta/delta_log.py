"""Reads what our commits say of themselves out of a Delta table's log, without opening the table.

Every commit of a job carries ``userMetadata`` in its ``commitInfo`` action (Delta protocol, "Commit Provenance
Information"): a JSON object under the key ``rw_sql``. Maintenance commits come in between and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

METADATA_KEY = "rw_sql"

Life = tuple[str | None, str | None]
"""A cluster and an incarnation, as a split state names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommit:
    """What one commit of a job says: which run and batch wrote it, and what it covers.

    ``ranges`` are the upstream's offsets per split, ``[start, end)`` (ingest only). ``epoch`` is the one that the run
    started at. ``batch`` is -1 for a fence, and ``done`` then is the newest batch of the generation before it (-1 where
    there is none): what a start needs to know never lies further back than the newest commit. ``generation`` is the
    checkpoint's (views only). ``lives`` are the cluster and the life (Kafka: topic id) that each split was read in.
    ``rewind`` is the REWIND, by its epoch, for which the table was taken back to what it was; 0 in any other commit.
    """

    job: str
    run: int
    epoch: int
    batch: int
    generation: int = 1
    ranges: dict[str, tuple[int, int]]
    done: int = -1
    lives: Mapping[str, Life] = field(default_factory=dict)
    rewind: int = 0

    def life_of(self, split: str) -> Life:
        """The cluster and the life that a split was read in; None where the commit does not say."""
        return self.lives.get(split, (None, None))

    def to_json(self) -> str:
        """The text for ``userMetadata``."""
        body: dict[str, Any] = {"job": self.job, "run": self.run, "epoch": self.epoch, "batch": self.batch}
        body["generation"] = self.generation
        if self.batch < 0:
            body["done"] = self.done
        if self.rewind:
            body["rewind"] = self.rewind
        body["ranges"] = {split: list(bounds) for split, bounds in self.ranges.items()}
        if self.lives:
            by_life: dict[Life, list[str]] = {}
            for split in self.ranges:
                by_life.setdefault(self.life_of(split), []).append(split)
            # One topic is the rule: its life is then said once, whatever the number of its splits.
            body["lives"] = [[*life, None if len(by_life) == 1 else splits] for life, splits in by_life.items()]
        return json.dumps({METADATA_KEY: body}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> JobCommit | None:
        """The commit behind ``userMetadata``; None where somebody else wrote it."""
        try:
            body = json.loads(text).get(METADATA_KEY)
        except (json.JSONDecodeError, AttributeError):
            return None
        if not isinstance(body, dict):
            return None
        ranges = {split: (bounds[0], bounds[1]) for split, bounds in body["ranges"].items()}
        return JobCommit(
            job=body["job"],
            run=body["run"],
            epoch=body["epoch"],
            batch=body["batch"],
            generation=body["generation"],
            ranges=ranges,
            done=body.get("done", -1),
            rewind=body.get("rewind", 0),
            lives={
                split: (cluster, incarnation)
                for cluster, incarnation, splits in body.get("lives", [])
                for split in (ranges if splits is None else splits)
            },
        )


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdigit()


# The newest version that was seen of each table, by its path.
_seen: dict[str, int] = {}


def latest_version(warehouse: Warehouse, table: str) -> int:
    """The table's newest version, -1 where there is no table.

    On a local path a look at the version after the last one seen: a log of 100,000 commits takes half a second to list.
    """
    if not warehouse.is_local:
        return _listed_version(warehouse, table)
    version = _seen.get(table, -1)
    if version < 0 or not warehouse.exists(commit_path(table, version)):
        version = _listed_version(warehouse, table)
    while warehouse.exists(commit_path(table, version + 1)):
        version += 1
    _seen[table] = version
    return version


def commit_versions(warehouse: Warehouse, table: str) -> list[int]:
    """The versions whose commit files are still there, ascending. Lists the log, which grows."""
    return sorted(int(name[:20]) for name in warehouse.list_names(f"{table}/_delta_log") if _is_commit(name))


def _listed_version(warehouse: Warehouse, table: str) -> int:
    return max(commit_versions(warehouse, table), default=-1)


def commit_path(table: str, version: int) -> str:
    """Where the commit of a version lies."""
    return f"{table}/_delta_log/{version:020d}.json"


def read_actions(warehouse: Warehouse, table: str, version: int) -> list[dict[str, Any]]:
    """The actions of one commit. Raises FileNotFoundError where its file is gone."""
    text = warehouse.read_text(commit_path(table, version))
    return [json.loads(line) for line in text.splitlines() if line]


def commits(warehouse: Warehouse, table: str, *, down_to: int = 0) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The commits whose files are still there, newest first, each with its actions; versions down to ``down_to``."""
    for version in range(latest_version(warehouse, table), down_to - 1, -1):
        try:
            actions = read_actions(warehouse, table, version)
        except FileNotFoundError:  # this one and all before it were cleaned away
            return
        yield version, actions


def job_commit(actions: list[dict[str, Any]]) -> JobCommit | None:
    """What a commit's actions say of the job that wrote it."""
    for action in actions:
        info = action.get("commitInfo")
        if info is not None and isinstance(info.get("userMetadata"), str):
            return JobCommit.from_json(info["userMetadata"])
    return None


def job_commits(warehouse: Warehouse, table: str, *, down_to: int = 0) -> Iterator[tuple[int, JobCommit]]:
    """The jobs' commits, newest first, versions from the newest to ``down_to``."""
    for version, actions in commits(warehouse, table, down_to=down_to):
        found = job_commit(actions)
        if found is not None:
            yield version, found


def restored_version(actions: list[dict[str, Any]]) -> int | None:
    """The version that a commit took the table back to; None for any other commit."""
    for action in actions:
        info = action.get("commitInfo")
        if info is not None and info.get("operation") == "RESTORE":
            version = info.get("operationParameters", {}).get("version")
            return int(version) if version is not None else None
    return None


def standing_commits(warehouse: Warehouse, table: str, *, down_to: int = 0) -> Iterator[tuple[int, JobCommit]]:
    """As :func:`job_commits`, without those that a later RESTORE took back."""
    below: int | None = None
    for version, actions in commits(warehouse, table, down_to=down_to):
        if below is not None and version > below:
            continue
        back_to = restored_version(actions)
        if back_to is not None:
            below = back_to
        found = job_commit(actions)
        if found is not None:
            yield version, found


def last_batch(warehouse: Warehouse, table: str, generation: int) -> int:
    """The newest batch of a generation that the table holds; -1 where it holds none."""
    for _, commit in job_commits(warehouse, table):
        if commit.generation == generation:
            return commit.batch if commit.batch >= 0 else commit.done
    return -1


def committed_ms(actions: list[dict[str, Any]]) -> int | None:
    """When a commit was written by its writer's clock, in milliseconds since 1970; None where it does not say."""
    for action in actions:
        info = action.get("commitInfo")
        if info is not None and info.get("timestamp") is not None:
            return int(info["timestamp"])
    return None


def added_rows(actions: list[dict[str, Any]]) -> int | None:
    """How many rows a commit adds as new data; None where its statistics do not say."""
    rows = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange", True):
            continue
        stats = add.get("stats")
        if not stats:
            return None
        rows += int(json.loads(stats)["numRecords"])
    return rows


def rows_without(actions: list[dict[str, Any]], column: str) -> int | None:
    """How many rows a commit adds in which a column is NULL; None where its statistics do not say."""
    rows = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange", True):
            continue
        nulls = json.loads(add.get("stats") or "{}").get("nullCount", {}).get(column)
        if nulls is None:
            return None
        rows += int(nulls)
    return rows


def column_count(actions: list[dict[str, Any]], column: str | None) -> int:
    """How many rows a commit adds as new data; with a ``column``, those in which it is not null.

    Files whose statistics do not say count as nothing.
    """
    found = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange", True) or not add.get("stats"):
            continue
        stats = json.loads(add["stats"])
        nulls = 0 if column is None else stats.get("nullCount", {}).get(column)
        found += 0 if nulls is None else int(stats.get("numRecords", 0)) - int(nulls)
    return found


def has_new_data(actions: list[dict[str, Any]]) -> bool:
    """Whether a commit adds rows (a fence and maintenance do not)."""
    return any(action["add"].get("dataChange", True) for action in actions if "add" in action)


def takes_data(actions: list[dict[str, Any]]) -> bool:
    """Whether a commit takes rows away (maintenance does not)."""
    return any(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
