"""The output of EXPLAIN: the preview and the steps. ``tests/fixtures/plan/*.sql`` beside their recorded text.

A statement in a fixture is explained on the catalog as the earlier statements of its file leave it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.plan.result.plan import Preview, SplitPreview
from rw_sql.plan.result.preview_text import render_preview
from tests.conftest import FIXTURES
from tests.plan.canned import ELSEWHERE, moved_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = sorted((FIXTURES / "plan").glob("*.sql"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_explain(path: Path, recorded: Callable[[Path, str], None]) -> None:
    world = moved_world()
    world.put_topic("old", (100, 140), (200, 250), at=ELSEWHERE)
    world.silent.add("127.0.0.1:1")
    told = []
    for text in path.read_text(encoding="utf-8").strip().split("\n\n"):
        told.append(f"{text}\n\n{world.explained(text)}\n")
        world.run(text)
    recorded(path.with_suffix(".txt"), "\n\n".join(told))


def split(number: int, verdict: str) -> SplitPreview:
    word, _, count = verdict.rpartition(" ")
    counts = {"DUPLICATES": "duplicates", "GAP": "gaps"}
    plain = SplitPreview(split=f"t:{number}", old=1, new=2, start=0, end=9, verdict=verdict)
    counted: dict[str, Any] = {counts[word]: int(count)} if word in counts else {}
    return replace(plain, **counted)


def test_a_long_preview_is_cut_but_counts_all() -> None:
    text = render_preview(Preview(title="t", splits=tuple(split(number, "DUPLICATES 2") for number in range(100))))
    assert "… and 60 more splits" in text
    assert "in all: DUPLICATES 200, GAP 0" in text


@pytest.mark.parametrize(
    ("verdicts", "total"),
    [
        (["NONE"], "DUPLICATES 0, GAP 0"),
        (["DUPLICATES 3", "GAP 4", "NONE", "DUPLICATES 1"], "DUPLICATES 4, GAP 4"),
        (["UNKNOWN (other topic)"], "DUPLICATES 0, GAP 0, UNKNOWN for 1 split"),
        (["UNKNOWN (other topic)", "UNKNOWN (other cluster)"], "DUPLICATES 0, GAP 0, UNKNOWN for 2 splits"),
    ],
)
def test_total(verdicts: list[str], total: str) -> None:
    preview = Preview(title="t", splits=tuple(split(number, verdict) for number, verdict in enumerate(verdicts)))
    assert f"in all: {total}" in render_preview(preview)
