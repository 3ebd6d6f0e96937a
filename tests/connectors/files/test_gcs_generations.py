"""The identity of an object in Google Cloud Storage: its content counts, its metadata does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import SplitState, UpstreamSplit
from rw_sql.connectors.files import store
from rw_sql.connectors.files.reader import _require_same
from rw_sql.connectors.files.store import FileStore, FoundFile
from rw_sql.connectors.support.incarnations import gcs_tag, is_same_incarnation
from rw_sql.model.offset_ranges import same_incarnation
from rw_sql.model.split_status import OK, RECREATED, identity_status
from tests.connectors.files.test_file_reader import read

if TYPE_CHECKING:
    from pathlib import Path

GENERATION = 1509217572944932
FIRST_TAG, SECOND_TAG = "CKT4y8qBlNcCEAE=", "CKT4y8qBlNcCEAI="
WRITTEN = datetime(2026, 1, 2, tzinfo=UTC)


def info(generation: int, metageneration: int, etag: str) -> dict[str, Any]:
    """What gcsfs reports for an object."""
    changed = WRITTEN + timedelta(days=metageneration - 1)
    return {
        "size": 6,
        "etag": etag,
        "generation": str(generation),
        "metageneration": str(metageneration),
        "ctime": WRITTEN,
        "mtime": changed,
        "updated": changed.isoformat(),
    }


def found(generation: int, metageneration: int, etag: str) -> FoundFile:
    return store._remote_file("f", info(generation, metageneration, etag))


def test_a_change_of_metadata_leaves_an_object_as_it_was() -> None:
    assert found(GENERATION, 2, SECOND_TAG) == found(GENERATION, 1, FIRST_TAG)
    assert found(GENERATION, 1, FIRST_TAG).modified_ms == WRITTEN.timestamp() * 1000


def test_an_object_without_changes_of_metadata_is_known_by_its_etag() -> None:
    assert found(GENERATION, 1, FIRST_TAG).incarnation == f"6-{FIRST_TAG}"
    assert gcs_tag(GENERATION) == FIRST_TAG


def test_another_generation_is_another_incarnation() -> None:
    assert found(GENERATION + 1, 1, "another").incarnation != found(GENERATION, 1, FIRST_TAG).incarnation


@pytest.mark.parametrize(
    ("known", "is_same"),
    [
        (f"6-{FIRST_TAG}", True),
        (f"6-{SECOND_TAG}", True),
        ("6-CKT4y8qBlNcCEKwC", True),  # metageneration 300
        (f"7-{SECOND_TAG}", False),
        ("6-CKX4y8qBlNcCEAI=", False),  # the next generation
        ("6-CKT4y8qBlNcC", False),
        ("6-CKT4y8qBlNcCEAKA", False),
        ("6-d41d8cd98f00b204e9800998ecf8427e", False),
        ("6-0x8D4BCC2E4835CD0", False),
    ],
)
def test_a_stored_position_is_compared_without_its_metageneration(known: str, is_same: bool) -> None:
    now = found(GENERATION, 5, "CKT4y8qBlNcCEAU=").incarnation
    assert is_same_incarnation(known, now) is is_same
    assert same_incarnation(None, known, None, now) is is_same
    state = SplitState(split="f", offset=6, incarnation=known)
    seen = UpstreamSplit(split="f", start=0, end=6, incarnation=now)
    assert identity_status(state, seen) == (OK if is_same else RECREATED)
    if is_same:
        _require_same("f", now, known)
    else:
        with pytest.raises(OSError, match="RECREATED f"):
            _require_same("f", now, known)


class Relabelled:
    """A bucket whose object gets other metadata with each request."""

    def __init__(self) -> None:
        self._metageneration = 1

    def info(self, path: str) -> dict[str, Any]:
        self._metageneration += 1
        return info(GENERATION, self._metageneration, f"etag {self._metageneration}")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        return b"{}\n{}\n"[start:end]


@pytest.mark.parametrize("life", [None, f"6-{FIRST_TAG}", f"6-{SECOND_TAG}"])
def test_an_object_whose_metadata_changes_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str | None
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text("{}\n{}\n")
    monkeypatch.setattr(FileStore, "filesystem", lambda self: Relabelled())
    rows = read(folder, "JSON", life=life, store={"protocol": "gs", "root": "bucket", "arguments": {}})
    assert len(rows) == 2
