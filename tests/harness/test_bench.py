"""The benchmark harness: ours and the peer's alternate, the verdict follows the goal, the page keeps its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.harness import Case, NotRunError, Outcome, Pair, find_cases, measure
from bench.report import BEGIN, END, write_json, write_page

ROOT = Path(__file__).parents[2]


def case(goal: float, calls: list[str], *, is_more_better: bool = False, has_peer: bool = True) -> Case:
    """A case whose two sides take 1 and 2, and note that they were called."""

    @contextmanager
    def opened() -> Iterator[Pair]:
        def ours() -> float:
            calls.append("ours")
            return 1.0

        def peer() -> float:
            calls.append("peer")
            return 2.0

        yield Pair(ours=ours, peer=peer if has_peer else None, settings={"level": "1"})

    return Case(
        name="c", title="c", peer="p", unit="s", goal=goal, open=opened, is_more_better=is_more_better, warm_ups=0
    )


def test_sides_alternate_and_the_ratio_is_of_medians() -> None:
    calls: list[str] = []
    outcome = measure(case(0.6, calls))
    assert calls == ["ours", "peer"] * 5
    assert outcome.ratio == 0.5
    assert outcome.spread == (0.5, 0.5)
    assert outcome.is_met is True


@pytest.mark.parametrize(
    ("goal", "is_more_better", "has_peer", "met"),
    [(0.4, False, True, False), (0.4, True, True, True), (0.9, False, False, False), (1.0, False, False, True)],
)
def test_the_verdict(goal: float, is_more_better: bool, has_peer: bool, met: bool) -> None:
    assert measure(case(goal, [], is_more_better=is_more_better, has_peer=has_peer)).is_met is met


def test_a_peer_that_is_not_there_counts_neither_way() -> None:
    @contextmanager
    def opened() -> Iterator[Pair]:
        raise NotRunError("pyflink does not install")
        yield

    outcome = measure(Case(name="c", title="c", peer="p", unit="s", goal=1.0, open=opened))
    assert outcome.is_met is None
    assert outcome.as_json()["not_run"] == "pyflink does not install"


def test_the_page_keeps_the_words_around_its_table(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page([Outcome(case=case(1.0, []), ours=(1.0,), peer=(2.0,))], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| c | p | s | 1 (1–1) | 2 (2–2) | 0.5 (0.5–0.5) | ≤ 1 | met |" in text


def test_results_of_other_cases_stay(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text('{"other": {"ratio": 1}}')
    write_json([Outcome(case=case(1.0, []), ours=(1.0,), peer=(2.0,))], file)
    assert '"other"' in file.read_text()
    assert '"c"' in file.read_text()


def test_every_case_is_found_and_the_page_has_its_marks() -> None:
    names = [found.name for found in find_cases(ROOT / "bench" / "cases")]
    assert "parse_create_source" in names
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page.index(BEGIN) < page.index(END)
