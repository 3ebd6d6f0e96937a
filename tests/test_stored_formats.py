"""The formats stored today and by every earlier format of the catalog, as files; each is read, and written back.

``fixtures/stored/catalog/NNNN.txt`` has each text that a codec of this project ever wrote while the catalog had that
format: every kind of record with its required fields alone and with all of its fields, every kind of change, and
before-images. These files never change; a new field adds lines to the newest file.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.checkpoints.journal import read_journal, write_journal
from rw_sql.errors import SqlError
from rw_sql.metastore import (
    JobStore,
    Metastore,
    before_from_json,
    catalog_from_json,
    catalog_to_json,
    changes_from_json,
    changes_to_json,
    record_from_json,
    record_to_json,
)
from rw_sql.metastore.catalog import load_catalog
from rw_sql.metastore.codec import before_to_json
from rw_sql.metastore.facts import PointDependent, RewindPoint
from rw_sql.metastore.keyed_table import KeyedTable
from rw_sql.metastore.records import Change, ObjectRecord
from rw_sql.model.backfill_ranges import History
from rw_sql.plan.deploy import plan_file
from rw_sql.plan.result.prediction import join_predictions, prediction_from_json, prediction_to_json
from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.direct.checkpoint_record import read_changes, read_record, write_change, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

STORED = Path(__file__).parent / "fixtures" / "stored"
FORMATS = sorted(STORED.glob("catalog/[0-9][0-9][0-9][0-9].txt"))


def stored_lines(path: Path) -> list[tuple[str, str, str]]:
    """(kind of text, its name, the stored text) of each line."""
    what_name_text = (line.split(" ", 2) for line in path.read_text(encoding="utf-8").splitlines())
    return [(what, name, text) for what, name, text in what_name_text]


def written_back(what: str, text: str) -> str:
    """A stored text, read and written."""
    match what:
        case "record":
            return record_to_json(record_from_json(text))
        case "changes":
            return changes_to_json(changes_from_json(text))
        case _:
            return before_to_json(before_from_json(text))


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.stem)
def test_every_format_is_read_and_written(path: Path, recorded: Callable[[Path, str], None]) -> None:
    lines = [f"{what} {name} {written_back(what, text)}\n" for what, name, text in stored_lines(path)]
    recorded(path.with_suffix(".written"), "".join(lines))


def test_the_newest_form_of_each_is_written_as_it_was_read() -> None:
    newest = {(what, name): text for what, name, text in stored_lines(FORMATS[-1])}
    assert {key: written_back(key[0], text) for key, text in newest.items()} == newest


def test_every_kind_field_and_change_is_stored_in_the_newest_file() -> None:
    assert int(FORMATS[-1].stem) == load_catalog().number
    newest = {(what, name): json.loads(text) for what, name, text in stored_lines(FORMATS[-1])}
    for record in get_args(ObjectRecord):
        names = [f.name for f in fields(record)]
        (kind,) = (f.default for f in fields(record) if f.name == "kind")
        assert list(newest["record", f"{kind}.full"]) == names
        assert list(newest["record", f"{kind}.bare"]) == names
    assert {name for what, name in newest if what == "changes"} == {c.__name__ for c in get_args(Change)} | {"none"}


def lines_of(name: str) -> list[str]:
    return (STORED / "texts" / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("text", lines_of("history.txt"))
def test_a_history_is_written_as_it_was_read(text: str) -> None:
    assert History.from_text(text).to_text() == text


@pytest.mark.parametrize("text", lines_of("prediction.txt"))
def test_a_prediction_is_written_as_it_was_read(text: str) -> None:
    assert prediction_to_json(prediction_from_json(text)) == text


def test_a_prediction_of_before_it_counted_is_read() -> None:
    text = '{"sources":{"2":{"log_version":4,"stood":{},"splits":[["orders:0",7,3,"REWOUND"]]}}}'
    counted = text.replace('"REWOUND"', '"REWOUND",0,0,true')
    assert prediction_to_json(prediction_from_json(text)) == counted


def test_a_prediction_of_a_newer_version_is_refused() -> None:
    text = '{"sources":{"2":{"log_version":4,"stood":{},"splits":[["orders:0",7,3,"REWOUND",0,0,true,1]]}}}'
    with pytest.raises(ValueError, match="at most length 7"):
        prediction_from_json(text)


def test_predictions_are_joined_as_they_were_read() -> None:
    _, first, second = lines_of("prediction.txt")
    sources = {**json.loads(first)["sources"], **json.loads(second)["sources"]}
    joined = json.dumps({"sources": sources}, separators=(",", ":"), ensure_ascii=False)
    assert join_predictions([first, None, second]) == joined
    assert join_predictions([None]) is None


@pytest.mark.parametrize("text", lines_of("job_commit.txt"))
def test_the_metadata_of_a_commit_is_written_as_it_was_read(text: str) -> None:
    commit = JobCommit.from_json(text)
    assert commit is not None
    assert commit.to_json() == text


def written_to(tmp_path: Path, name: str, text: str, write: Callable[[CheckpointFiles], object]) -> str:
    """The file of a checkpoint's journal, put there, then read and written by ``write``."""
    file = tmp_path / "_rw_sql" / name
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    write(CheckpointFiles.at(str(tmp_path)))
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("stored", "number"), [("journal_entry.json", 1), ("journal_entry_without_files.json", 12)])
def test_a_rewrite_of_a_checkpoint_is_written_as_it_was_read(stored: str, number: int, tmp_path: Path) -> None:
    def write(files: CheckpointFiles) -> None:
        (entry,) = read_journal(files)
        write_journal(files, entry)

    text = (STORED / "files" / stored).read_text(encoding="utf-8")
    assert written_to(tmp_path, f"{number:06}.json", text, write) == text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (('"batch": 4', '"batch": "4"'), "Expected `int`, got `str` - at `$.batch`"),
        (('"batch": 4', '"batch": 4, "by": 1'), "Object contains unknown field `by`"),
        (('  "number": 1,\n', ""), "Object missing required field `number`"),
        (('"after"', '"then"'), "Object contains unknown field `then` - at `$.files[0]`"),
    ],
)
def test_a_broken_rewrite_of_a_checkpoint_is_refused(changed: tuple[str, str], said: str, tmp_path: Path) -> None:
    text = (STORED / "files" / "journal_entry.json").read_text(encoding="utf-8")
    with pytest.raises(SqlError) as refused:
        written_to(tmp_path, "000001.json", text.replace(*changed), read_journal)
    assert refused.value.message.endswith(f"/_rw_sql/000001.json' is not a record of a rewrite: {said}")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (('"objects": []', '"objects": [{}]'), "not a record: it has no kind"),
        ((' "objects": [],\n', ""), "Object missing required field `objects`"),
        (('"epoch": 0', '"epoch": null'), "Expected `int`, got `null` - at `$.epoch`"),
        (('"version": 1', '"version": 2'), "its version is 2, and this rw_sql reads version 1"),
        (('"format": "rw_sql catalog"', '"format": "x"'), "it has no field \"format\" with the text 'rw_sql catalog'"),
    ],
)
def test_a_broken_export_of_a_catalog_is_refused(changed: tuple[str, str], said: str) -> None:
    text = (STORED / "files" / "catalog_export_empty.json").read_text(encoding="utf-8")
    with pytest.raises(SqlError) as refused:
        catalog_from_json(text.replace(*changed), "it")
    assert refused.value.message == f"it is not a catalog: {said}"


@pytest.mark.parametrize("stored", ["readers.json", "readers_empty.json"])
def test_the_record_of_a_readers_checkpoint_is_written_as_it_was_read(stored: str, tmp_path: Path) -> None:
    def write(files: CheckpointFiles) -> None:
        record = read_record(files)
        assert record is not None
        write_record(files, record)

    text = (STORED / "files" / stored).read_text(encoding="utf-8")
    assert written_to(tmp_path, "readers.json", text, write) == text


@pytest.mark.parametrize(("stored", "number"), [("reader_change.json", 2), ("reader_change_dropped.json", 3)])
def test_a_change_of_a_readers_checkpoint_is_written_as_it_was_read(stored: str, number: int, tmp_path: Path) -> None:
    def write(files: CheckpointFiles) -> None:
        (change,) = read_changes(files)
        write_change(files, change)

    text = (STORED / "files" / stored).read_text(encoding="utf-8")
    assert written_to(tmp_path, f"{number:06}.json", text, write) == text


@pytest.mark.parametrize("stored", ["deploy_plan.json", "deploy_plan_empty.json"])
def test_a_saved_plan_is_written_as_it_was_read(stored: str) -> None:
    text = (STORED / "files" / stored).read_text(encoding="utf-8")
    assert plan_file.to_json(plan_file.from_json(text, stored)) == text


@pytest.mark.parametrize("stored", ["catalog_export.json", "catalog_export_empty.json"])
def test_an_exported_catalog_is_written_as_it_was_read(stored: str) -> None:
    text = (STORED / "files" / stored).read_text(encoding="utf-8")
    assert catalog_to_json(catalog_from_json(text, stored)) == text


def test_rewind_points_are_stored_as_json(tmp_path: Path) -> None:
    texts = lines_of("rewind_point.txt")
    points = (
        RewindPoint(source_id=2, operation=13, made_ms=1, reason="the log was cleaned"),
        RewindPoint(
            source_id=2,
            operation=14,
            made_ms=2,
            folder="rewind-2/14",
            log_version=4,
            states={"bücher": '{"offset":1}'},
            dependents=(
                PointDependent(id=3, generation=1, version=5, batch=-1),
                PointDependent(id=4, generation=2, version=5, batch=7, reads=((2, 5), (3, 0))),
            ),
        ),
    )
    Metastore.open(str(tmp_path))
    jobs = JobStore(f"{tmp_path}/rw_catalog")
    jobs.write_rewind_points(points)
    rows = KeyedTable(
        f"{tmp_path}/rw_catalog/runtime_rewind_points", ("source_id", "operation"), list, worth_folding=0
    ).rows()
    assert [rows[key]["body"] for key in sorted(rows)] == texts
    assert JobStore(f"{tmp_path}/rw_catalog").rewind_points() == points
