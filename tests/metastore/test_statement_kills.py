"""Processes that run statements on one warehouse at once, and are killed, know the outcome of every statement."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import DUPLICATE_OBJECT, UNDEFINED_OBJECT
from tests.metastore.statement_crowd import DONE, Crowd, place, read_journal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.crash, pytest.mark.long]


@pytest.mark.parametrize("location", ["local", pytest.param("s3", marks=pytest.mark.s3)])
def test_processes_killed_among_their_statements_find_out_every_outcome(
    tmp_path: Path, seed: int, location: str
) -> None:
    with place(location, tmp_path) as (warehouse, store):
        crowd = Crowd(folder=tmp_path, warehouse=warehouse, seed=seed, processes=3, statements=12, kills=2)
        crowd.run()
        assert crowd.check()["kills"] == 2
        if store is not None:
            from tests.support.s3_store import unconditional_commits

            assert unconditional_commits(store.requests()) == []


def test_the_check_finds_every_false_outcome(tmp_path: Path) -> None:
    crowd = Crowd(folder=tmp_path, warehouse=str(tmp_path / "warehouse"), seed=1, processes=2, statements=8, kills=0)
    crowd.run()
    told = [read_journal(crowd.journal(process)) for process in range(2)]
    assert crowd.check()["statements"] == 16
    assert {DONE, DUPLICATE_OBJECT.code, UNDEFINED_OBJECT.code} <= {one.outcome for journal in told for one in journal}
    for process, journal in enumerate(told):
        for number, true in enumerate(journal):
            false = replace(true, outcome=DUPLICATE_OBJECT.code if true.outcome == DONE else DONE)
            lines = [json.dumps(asdict(one)) for one in (*journal[:number], false, *journal[number + 1 :])]
            crowd.journal(process).write_text("\n".join(lines) + "\n", encoding="utf-8")
            with pytest.raises(AssertionError):
                crowd.check()
        crowd.journal(process).write_text("".join(json.dumps(asdict(one)) + "\n" for one in journal), encoding="utf-8")
    crowd.check()
