"""Rewriting the files of a checkpoint: the changed and unchanged files, and the case of a running process."""

from __future__ import annotations

import fcntl
import json
import threading
from typing import TYPE_CHECKING

import pytest

from rw_sql.checkpoints.checkpoint import Rewrite, changes_of, read_checkpoint
from rw_sql.checkpoints.file_lists import read_lists
from rw_sql.checkpoints.files import CheckpointFiles, checksum_of
from rw_sql.checkpoints.journal import DONE, STARTED, UNDONE, read_journal, write_journal
from rw_sql.checkpoints.offset_log import read_entry
from rw_sql.checkpoints.positions import read_position
from rw_sql.checkpoints.rewriting import find_undoable, rewrite, undo
from rw_sql.errors import SqlError
from tests.checkpoints.made import (
    checksums_hold,
    commit_batch,
    delta,
    files,
    kafka,
    list_files,
    make_checkpoint,
    plan_batch,
    put,
    tree,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.checkpoints.journal import JournalEntry


def move(path: Path, moved: dict[str, str | None], *, watch_seconds: float = 0) -> JournalEntry:
    at = CheckpointFiles.at(str(path))
    found = read_checkpoint(at)
    wanted = Rewrite(batch=found.batch, stamp=found.stamp, files=changes_of(found, moved), statement="MOVE")
    return rewrite(at, wanted, actor="operator", watch_seconds=watch_seconds)


def take_back(path: Path) -> None:
    at = CheckpointFiles.at(str(path))
    found = read_checkpoint(at)
    undo(at, found, find_undoable(at, found), watch_seconds=0)


def test_only_the_moved_sources_line_changes(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1]), delta(3)], [kafka(a=[5]), delta(4)], [kafka(a=[9]), delta(5)])
    before = tree(path)
    move(path, {"1": delta(2)})
    after = tree(path)
    assert {name for name in after if after[name] != before.get(name)} == {
        "offsets/1",
        "offsets/.1.crc",
        "offsets/2",
        "offsets/.2.crc",
    }
    assert after["offsets/2"] == before["offsets/2"].replace(delta(5).encode(), delta(2).encode())
    assert after["offsets/1"] == before["offsets/1"].replace(delta(4).encode(), delta(2).encode())
    assert checksums_hold(path)


def test_the_first_batch_has_none_before_it(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[5])])
    move(path, {"0": kafka(a=[2])})
    assert read_entry((path / "offsets" / "0").read_text()).offsets == (kafka(a=[2]),)


def test_named_sources_of_offset_log_v2(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[5]), files(3)], names=["left", "right"])
    move(path, {"right": files(0)})
    assert (path / "offsets" / "0").read_text().splitlines()[2:] == [f"left:{kafka(a=[5])}", f"right:{files(0)}"]


def test_undo_puts_every_byte_back(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    before = tree(path)
    assert move(path, {"0": kafka(a=[2])}).number == 1
    assert move(path, {"0": kafka(a=[3])}).number == 2
    take_back(path)
    assert read_checkpoint(CheckpointFiles.at(str(path))).splits[0].position == 2
    take_back(path)
    assert tree(path) == before
    assert [entry.state for entry in read_journal(CheckpointFiles.at(str(path)))] == [UNDONE, UNDONE]
    with pytest.raises(SqlError, match="has no rewrite to undo"):
        take_back(path)


def test_the_journal_keeps_who_when_and_what_was_there(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    before = (path / "offsets" / "1").read_text()
    move(path, {"0": kafka(a=[2])})
    (entry,) = read_journal(CheckpointFiles.at(str(path)))
    assert (entry.state, entry.batch, entry.actor, entry.statement) == (DONE, 1, "operator", "MOVE")
    assert {change.name: change.before for change in entry.files}["offsets/1"] == before


def test_undo_is_refused_once_the_job_has_gone_on(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    move(path, {"0": kafka(a=[2])})
    plan_batch(path, 2, [kafka(a=[6])])
    with pytest.raises(SqlError, match="planned batch 2") as caught:
        take_back(path)
    assert caught.value.code == "RW324"


def test_undo_is_refused_where_somebody_else_wrote(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    move(path, {"0": kafka(a=[2])})
    plan_batch(path, 1, [kafka(a=[7])])
    with pytest.raises(SqlError, match="changed by another program"):
        take_back(path)


@pytest.mark.parametrize("happens", ["planned", "committed"])
def test_a_job_that_moves_while_it_is_watched(tmp_path: Path, happens: str) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])

    def run_on() -> None:
        plan_batch(path, 2, [kafka(a=[6])])
        if happens == "committed":
            commit_batch(path, 2)

    job = threading.Timer(0.2, run_on)
    job.start()
    with pytest.raises(SqlError, match="a job is using checkpoint") as caught:
        move(path, {"0": kafka(a=[2])}, watch_seconds=30)
    job.join()
    assert caught.value.code == "RW321"
    assert read_entry((path / "offsets" / "1").read_text()).offsets == (kafka(a=[5]),)
    assert not read_journal(CheckpointFiles.at(str(path)))


def test_a_job_that_shows_itself_at_the_very_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is idle during the watch, and plans its next batch between the last look and the rewrite."""
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    before = tree(path)
    plain = CheckpointFiles.write

    def write(self: CheckpointFiles, name: str, text: str) -> None:
        plain(self, name, text)
        if name == "offsets/1":
            plan_batch(path, 2, [kafka(a=[6])])

    monkeypatch.setattr(CheckpointFiles, "write", write)
    with pytest.raises(SqlError, match="a job is using"):
        move(path, {"0": kafka(a=[2])})
    after = {name: data for name, data in tree(path).items() if not name.endswith(("offsets/2", ".2.crc"))}
    assert after == before
    (entry,) = read_journal(CheckpointFiles.at(str(path)))
    assert entry.state == UNDONE


def test_a_checkpoint_that_moved_since_it_was_seen(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    at = CheckpointFiles.at(str(path))
    found = read_checkpoint(at)
    plan_batch(path, 2, [kafka(a=[6])])
    commit_batch(path, 2)
    wanted = Rewrite(
        batch=found.batch, stamp=found.stamp, files=changes_of(found, {"0": kafka(a=[2])}), statement="MOVE"
    )
    with pytest.raises(SqlError, match="a job is using"):
        rewrite(at, wanted, actor="operator", watch_seconds=0)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_rewrite_that_was_killed_halfway(tmp_path: Path, written: int) -> None:
    """A kill after the journal and ``written`` of the two files: the command reports it, and undo restores the old
    files."""
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    before = tree(path)
    done = move(path, {"0": kafka(a=[2])})
    at = CheckpointFiles.at(str(path))
    for change in done.files[written:]:
        at.write(change.name, change.before)
    write_journal(at, done.with_state(STARTED))
    unfinished = read_checkpoint(at).unfinished
    assert unfinished is not None
    assert unfinished.number == done.number
    take_back(path)
    assert tree(path) == before
    assert read_checkpoint(at).unfinished is None


def test_two_rewriters_at_once(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    (path / "_rw_sql").mkdir()
    with (path / "_rw_sql" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SqlError, match="another process is rewriting"):
            move(path, {"0": kafka(a=[2])})
    move(path, {"0": kafka(a=[2])})


def test_a_checkpoint_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    before = tree(path)

    def refuse(self: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(SqlError, match="permission denied") as caught:
        move(path, {"0": kafka(a=[2])})
    assert "as the user that runs the job" in str(caught.value)
    assert tree(path) == before


def test_files_without_checksums_stay_without(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    for checksum in path.rglob(".*.crc"):
        checksum.unlink()
    move(path, {"0": kafka(a=[2])})
    assert not list((path / "offsets").glob(".*"))


def test_on_an_object_store(tmp_path: Path) -> None:
    """fsspec's memory file system replaces an object store: no rename, no checksums, no lock."""
    local = make_checkpoint(tmp_path / "c", [kafka(a=[1])], [kafka(a=[5])])
    root = f"memory://{tmp_path.name}/c"
    at = CheckpointFiles.at(root)
    for name, data in tree(local).items():
        if not name.endswith(".crc"):
            at.system.pipe_file(at.path(name), data)
    found = read_checkpoint(at)
    wanted = Rewrite(batch=1, stamp=found.stamp, files=changes_of(found, {"0": kafka(a=[2])}), statement="MOVE")
    rewrite(at, wanted, actor="operator", watch_seconds=0)
    moved = read_checkpoint(at)
    assert moved.splits[0].position == 2
    undo(at, moved, find_undoable(at, moved), watch_seconds=0)
    assert at.read("offsets/1") == (local / "offsets" / "1").read_text()


def test_the_checksum_is_hadoops() -> None:
    """A file that Spark 4.2 wrote, with the checksum file that Hadoop wrote beside it."""
    metadata = b'{"id":"35f20518-8d17-4f7d-a78f-14faf0c2d96c"}'
    assert checksum_of(metadata).hex() == "63726300000002009f656635"
    assert len(checksum_of(b"x" * 1031)) == 8 + 3 * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its first line is ''"),
        ("v3\n{}", "its first line is 'v3'"),
        ("v1", "it ends after its first line"),
        ("v2\n{}\nsrc", "names no source"),
        ("v2\n{}\na:1\na:2", "names a source twice"),
    ],
)
def test_what_is_no_entry(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_entry(text)


@pytest.mark.parametrize("text", ["v1\n{}\n-", 'v1\n{"a":1}\n{"logOffset":1}\n-', "v2\n{}\na:-\nb:{}", "v1\n{}\n5\n"])
def test_an_entry_is_written_as_it_was_read(text: str) -> None:
    assert read_entry(text).render() == text


def test_an_entry_of_either_version() -> None:
    entry = read_entry('v1\n{"batchWatermarkMs":1700000000000}\n{"t":{"0":7}}\n-')
    assert (entry.version, entry.watermark_ms) == (1, 1700000000000)
    assert (entry.names, entry.offsets) == (("0", "1"), ('{"t":{"0":7}}', None))
    entry = read_entry('v2\n{}\nsrc:{"t":{"0":7}}\n0:-')
    assert (entry.names, entry.offsets) == (("src", "0"), ('{"t":{"0":7}}', None))


def test_kinds_of_positions() -> None:
    def told(text: str | None) -> tuple[str, dict[str, int]]:
        found = read_position("0", text)
        return found.kind, dict(found.splits)

    assert told(kafka(a=[1, 2])) == ("kafka", {"a:0": 1, "a:1": 2})
    assert told(delta(7)) == ("delta", {"version": 7})
    assert told(files(2)) == ("file", {"list": 3})
    for other in (
        None,
        "5",
        "{}",
        '{"seq":1}',
        '{"a":{"x":1}}',
        '{"a":{"0":true}}',
        "not json",
        '{"logOffset":1,"b":2}',
    ):
        assert told(other) == ("other", {})


def test_files_of_a_compacted_list(tmp_path: Path) -> None:
    """Spark compacts the previous lists into one file, which keeps the list number of each entry, and removes the old
    lists."""
    path = make_checkpoint(tmp_path / "c", [files(3)])
    entries = [json.dumps({"path": f"file:///in/{number}", "timestamp": 1, "batchId": number}) for number in range(3)]
    put(path, "sources/0/2.compact", "\n".join(["v1", *entries]))
    list_files(path, 3, tmp_path / "3")
    lists = read_lists(CheckpointFiles.at(str(path)), "0")
    assert lists.next == 4
    assert lists.between(1, 4) == ("file:///in/1", "file:///in/2", f"file://{tmp_path / '3'}")
