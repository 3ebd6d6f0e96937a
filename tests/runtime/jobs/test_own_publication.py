"""A publication is dropped with a source only if the source has created it, which the server shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import CaptureError, Prepared
from rw_sql.connectors.registry import change_connector
from rw_sql.errors import UPSTREAM_UNREACHABLE
from rw_sql.metastore import Snapshot
from rw_sql.runtime.ingest.capture import begin_upstream
from rw_sql.runtime.jobs.made_upstream import made_upstream, note_made, release_upstream
from tests.runtime.jobs.test_made_upstream import SHOP, Releases, captured, context_of

if TYPE_CHECKING:
    from pathlib import Path

STATE = SplitState(split="shop", offset=5)


class Server:
    """A server with or without the publication, in place of PostgreSQL. ``owns``: see ``owns_publication``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owns: bool | None = None
        self.is_refusing = False
        self.is_made_meanwhile = False
        kind = type(change_connector("postgres-cdc"))
        monkeypatch.setattr(kind, "owns_publication", lambda *_arguments, **_more: self.owns)
        monkeypatch.setattr(kind, "slot_details", lambda *_arguments, **_more: None)
        monkeypatch.setattr(kind, "prepare", self._prepare)

    def _prepare(self, *_arguments: Any, **_more: Any) -> Prepared:
        if self.is_refusing:
            raise CaptureError(UPSTREAM_UNREACHABLE, "an event trigger refuses it", is_temporary=True)
        is_made = self.owns is None and not self.is_made_meanwhile
        self.owns = self.owns or is_made
        return Prepared(state=STATE, made_slot=True, made_publication=is_made)


def begin(tmp_path: Path) -> None:
    kind = change_connector("postgres-cdc")
    begin_upstream(context_of(tmp_path), kind, captured(SHOP), SHOP, STATE, (), is_new=True)


@pytest.mark.parametrize("tries_again", [False, True])
def test_a_publication_that_somebody_creates_after_a_failed_attempt_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries_again: bool
) -> None:
    context, releases, server = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc"), Server(monkeypatch)
    server.is_refusing = True
    with pytest.raises(CaptureError):
        begin(tmp_path)
    server.owns, server.is_refusing = False, False
    if tries_again:
        begin(tmp_path)
        assert not made_upstream(context.warehouse, captured(SHOP))["publication"]
    assert release_upstream(context, Snapshot, 7)
    assert releases.dropped == ["rw_shop"]


def test_a_publication_that_somebody_creates_just_before_the_source_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, releases, server = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc"), Server(monkeypatch)
    server.is_made_meanwhile = True
    begin(tmp_path)
    assert not made_upstream(context.warehouse, captured(SHOP))["publication"]
    assert release_upstream(context, Snapshot, 7)
    assert releases.dropped == ["rw_shop"]


def test_a_publication_that_an_attempt_has_created_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, releases, server = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc"), Server(monkeypatch)
    server.is_refusing = True
    with pytest.raises(CaptureError):
        begin(tmp_path)
    server.owns = True
    assert release_upstream(context, Snapshot, 7)
    assert releases.dropped == ["rw_shop", "rw_published"]


def test_a_publication_whose_record_lacks_that_it_is_marked_needs_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, releases, server = context_of(tmp_path), Releases(monkeypatch, "postgres-cdc"), Server(monkeypatch)
    note_made(context.warehouse, captured(SHOP), slot=True, publication=True)
    server.owns = False
    begin(tmp_path)
    assert release_upstream(context, Snapshot, 7)
    assert releases.dropped == ["rw_shop", "rw_published"]
