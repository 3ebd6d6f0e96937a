"""Statements on a source of files: a folder that exists, and a catalog that does not."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.records import SourceRecord, TableRecord
from rw_sql.model.definitions import definition_of, log_columns
from rw_sql.model.view_inputs import view_inputs
from rw_sql.plan.statements.common import take_up_new_topics
from tests.plan.canned import CannedWorld
from tests.plan.statements.move.test_block import planned

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, name: str, text: str, at: int = 1_700_000_000) -> None:
    (folder / name).write_text(text)
    os.utime(folder / name, (at, at))


def create(folder: Path, *options: str, encode: str = "JSON", columns: str = "id INT") -> str:
    more = "".join(f", {option}" for option in options)
    return (
        f"CREATE SOURCE f ({columns}) INCLUDE file AS name INCLUDE timestamp AS at "
        f"WITH (connector = 'posix_fs', posix_fs.root = '{folder}'{more}) FORMAT PLAIN ENCODE {encode}"
    )


@pytest.fixture
def world(tmp_path: Path) -> CannedWorld:
    """A source over two files, of which ``a`` was read to its end and ``b`` to its middle, and a view on it."""
    write(tmp_path, "a.json", '{"id":1}\n')
    write(tmp_path, "b.json", '{"id":2}\n{"id":3}\n')
    world = CannedWorld()
    world.run(create(tmp_path), "CREATE MATERIALIZED VIEW v AS SELECT id FROM f")
    world.moved = {"a.json": 9, "b.json": 9}
    world.read = {"a.json", "b.json"}
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    return world


def statuses(world: CannedWorld) -> dict[object, object]:
    plan = world.plan("SHOW SOURCE SPLITS f")
    assert plan.table is not None
    names = [name for name, _ in plan.table.columns]
    return {row[names.index("split")]: row[names.index("status")] for row in plan.table.rows}


def test_its_record_does_not_grow_with_the_files(world: CannedWorld) -> None:
    source = world.snapshot.find("source", "f")
    assert isinstance(source, SourceRecord)
    assert source.birth == ""
    assert world.states("f") == {"a.json": 9, "b.json": 9}


def test_a_table_orders_the_records_of_one_offset(tmp_path: Path) -> None:
    write(tmp_path, "a.json", '{"id":1}\n')
    world = CannedWorld()
    create_table = create(tmp_path, columns="id INT PRIMARY KEY, v INT").replace("CREATE SOURCE", "CREATE TABLE")
    world.run(create_table)
    table, source = world.snapshot.find("table", "f"), world.snapshot.find("source", "f")
    assert isinstance(table, TableRecord)
    assert isinstance(source, SourceRecord)
    assert "`_rw_offset`, `_rw_index` FROM" in table.maintenance.query
    assert log_columns(definition_of(source))[-1] == ("_rw_index", "BIGINT")
    (given,) = view_inputs(world.snapshot, table)
    assert given.columns[-2:] == given.stored[-2:] == ("_rw_offset", "_rw_index")
    # A table of an older version has a query without the column, and its log may lack it.
    older = replace(table.maintenance, query=table.maintenance.query.replace(", `_rw_index`", ""))
    (given,) = view_inputs(world.snapshot, replace(table, maintenance=older))
    assert given.columns[-1] == given.stored[-1] == "_rw_offset"


def test_a_new_file_is_taken_up_from_its_beginning(world: CannedWorld, tmp_path: Path) -> None:
    source = world.snapshot.find("source", "f")
    assert isinstance(source, SourceRecord)
    write(tmp_path, "c.json", '{"id":4}')
    changes, notes = take_up_new_topics(world.snapshot, world.inspector, source)
    assert notes == ("1 new split: c.json at 0",)
    world.apply(changes)
    assert world.states("f")["c.json"] == 0
    # Known splits are not written again.
    assert [len(getattr(change, "splits", None) or change.states) for change in changes] == [1, 1]  # type: ignore[union-attr]


def test_what_became_of_files_is_shown(world: CannedWorld, tmp_path: Path) -> None:
    assert statuses(world) == {"a.json": "OK", "b.json": "OK"}
    write(tmp_path, "a.json", '{"id":9}\n', at=1_700_000_001)
    (tmp_path / "b.json").unlink()
    write(tmp_path, "c.json", "")
    assert statuses(world) == {"a.json": "RECREATED", "b.json": "ORPHAN", "c.json": "NEW"}


def test_a_changed_file_is_read_again_after_a_reset(world: CannedWorld, tmp_path: Path) -> None:
    write(tmp_path, "a.json", '{"id":9}\n', at=1_700_000_001)
    world.moved.clear()
    world.run("RESET SOURCE SPLITS f FOR SPLITS ('a.json')")
    state = world.full_states("f")["a.json"]
    assert (state.offset, state.incarnation) == (0, "9-1700000001000000000")
    assert statuses(world)["a.json"] == "OK"


def test_one_file_is_read_again_and_one_is_left_out(world: CannedWorld) -> None:
    world.run("PAUSE SOURCE f")
    again = "INJECT SOURCE OFFSETS f VALUES ('a.json' = 0) ALLOW DUPLICATES"
    assert "a.json" in world.explained(again)
    assert "DUPLICATES at most 9 (offsets of files count bytes)" in world.explained(again)
    skip = "INJECT SOURCE OFFSETS f TO LATEST FOR SPLITS ('b.json') ALLOW GAPS"
    assert "GAP at most 9 (offsets of files count bytes)" in world.explained(skip)
    world.run(again, skip)
    stored = world.snapshot.states("ingest-1")
    assert {split: row.state for split, row in stored.items()} == {
        "a.json": stored["a.json"].state,
        "b.json": stored["b.json"].state,
    }
    world.moved.clear()
    assert world.states("f") == {"a.json": 0, "b.json": 18}


NARROW = "ALTER SOURCE f UNSAFE SET (match_pattern = 'a*')"
LEFT = "GAP at most 9 (left unread)"


def verdicts(world: CannedWorld, text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    plan = world.plan(text)
    assert plan.preview is not None
    return {split.split: split.verdict for split in plan.preview.splits}, plan.unallowed


def test_files_that_a_narrower_pattern_leaves_unread_are_a_gap(world: CannedWorld) -> None:
    assert verdicts(world, NARROW) == ({"a.json": "NONE", "b.json": LEFT}, ("GAPS",))
    assert verdicts(world, NARROW + " ALLOW GAPS")[1] == ()
    answers = world.answers(NARROW)
    stalls = (
        "the upstream no longer lists b.json, which the source has not read to the end, so the source stalls until "
        "RESET SOURCE SPLITS f"
    )
    assert ("NOTICE", stalls) in answers
    # The RESET that this notice asks for loses the records too.
    assert verdicts(world, "RESET SOURCE SPLITS f") == ({"a.json": "NONE", "b.json": LEFT}, ("GAPS",))
    forget = "RESET SOURCE SPLITS f FOR SPLITS ('b.json') WITH (REDISCOVER = false, FORGET_OFFSETS = true)"
    assert verdicts(world, forget)[0]["b.json"] == LEFT
    # Setting the old pattern again loses nothing.
    assert verdicts(world, "ALTER SOURCE f UNSAFE UNSET (match_pattern)") == (
        {"a.json": "NONE", "b.json": "NONE"},
        (),
    )


def test_files_that_were_read_are_no_gap(world: CannedWorld) -> None:
    world.moved["b.json"] = 18
    assert verdicts(world, NARROW) == ({"a.json": "NONE", "b.json": "ORPHAN"}, ())
    assert all("stalls" not in detail for _, detail in world.answers(NARROW))
    assert verdicts(world, "RESET SOURCE SPLITS f") == ({"a.json": "NONE", "b.json": "ORPHAN"}, ())


def test_a_deleted_file_is_lost_by_the_reset_and_not_by_other_moves(world: CannedWorld, tmp_path: Path) -> None:
    (tmp_path / "b.json").unlink()
    assert verdicts(world, NARROW) == ({"a.json": "NONE", "b.json": "ORPHAN"}, ())
    assert verdicts(world, "RESET SOURCE SPLITS f") == ({"a.json": "NONE", "b.json": LEFT}, ("GAPS",))


@pytest.mark.parametrize("reset", ["", "RESET SOURCE SPLITS f"])
def test_a_block_shows_the_files_that_it_leaves(world: CannedWorld, reset: str) -> None:
    texts = ("PAUSE SOURCE f", NARROW, reset, "RESUME SOURCE f")
    plan = planned(world, *(text for text in texts if text))
    assert plan.preview is not None
    assert {split.split: split.verdict for split in plan.preview.splits} == {"a.json": "NONE", "b.json": LEFT}
    assert plan.unallowed == ("GAPS",)
    assert any("stalls until" in notice for notice in plan.preview.notices) == (not reset)


def test_an_offset_beyond_a_file_is_refused(world: CannedWorld) -> None:
    world.run("PAUSE SOURCE f")
    with pytest.raises(SqlError) as caught:
        world.run("INJECT SOURCE OFFSETS f VALUES ('a.json' = 10)")
    assert "10" in caught.value.message


def test_a_session_that_shares_no_sources_shares_files(tmp_path: Path) -> None:
    world = CannedWorld(shares_sources=False)
    world.run(create(tmp_path))
    source = world.snapshot.find("source", "f")
    assert isinstance(source, SourceRecord)
    assert source.is_shared
    assert "shared" not in source.definition


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        ("CSV (without_header = 'maybe')", "unrecognized without_header value 'maybe'"),
        ("PARQUET (delimiter = ',')", "unknown format_encode_options for PLAIN PARQUET: delimiter"),
        ("BYTES", 'connector "posix_fs" does not support format PLAIN with encode BYTES'),
    ],
)
def test_refused_encodings(tmp_path: Path, encode: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        CannedWorld().run(create(tmp_path, encode=encode))
    assert caught.value.message == message


@pytest.mark.parametrize("encode", ["CSV", "CSV (without_header = 'false', delimiter = ';')", "JSON", "PARQUET"])
def test_accepted_encodings(tmp_path: Path, encode: str) -> None:
    CannedWorld().run(create(tmp_path, encode=encode))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SqlError) as caught:
        CannedWorld().run(create(tmp_path / "none"))
    assert caught.value.message == f'the upstream of source "f" does not answer: {tmp_path}/none does not exist'
