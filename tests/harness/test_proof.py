"""The proof harness: passed seeds are not run again, failed ones are, and the page reports both."""

from __future__ import annotations

import subprocess
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from proof import __main__ as command
from proof.cases import versions
from proof.harness import TRIED, Proof, RefutedError, Trial, known_trials, run_proof, tried_commit, write_page
from rw_sql.spark_jars import SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pytest

ROOT = Path(__file__).parents[2]


def proof(seen: list[int], *, bad: Collection[int] = ()) -> Proof:
    def check(seed: int, folder: Path) -> dict[str, int]:
        assert not list(folder.iterdir())
        seen.append(seed)
        assert seed not in bad, f"{seed} is bad"
        return {"kills": 2}

    return Proof(name="p", claim="it holds", method="by trying", seeds=range(3), check=check)


def run(one: Proof, work: Path, commit: str = "abc") -> dict[int, Trial]:
    return run_proof(one, work=work, commit=commit, on_trial=lambda _trial: None)


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    seen: list[int] = []
    run(proof(seen, bad={1}), tmp_path)
    assert seen == [0, 1, 2]
    trials = run(proof(seen), tmp_path)
    assert seen == [0, 1, 2, 1]
    assert [trial.failure for trial in trials.values()] == [None, None, None]


def test_another_commit_starts_again(tmp_path: Path) -> None:
    seen: list[int] = []
    run(proof(seen), tmp_path)
    run(proof(seen), tmp_path, "def")
    assert seen == [0, 1, 2] * 2


def test_changes_that_are_not_committed_never_pass(tmp_path: Path) -> None:
    seen: list[int] = []
    run(proof(seen), tmp_path, "abc+")
    run(proof(seen), tmp_path, "abc+")
    assert seen == [0, 1, 2] * 2


def test_a_line_cut_off_by_a_kill_is_run_again(tmp_path: Path) -> None:
    seen: list[int] = []
    run(proof(seen), tmp_path)
    file = tmp_path / "p.jsonl"
    file.write_text(file.read_text()[:-20])
    run(proof(seen), tmp_path)
    assert seen == [0, 1, 2, 2]


def test_processes_share_the_seeds(tmp_path: Path) -> None:
    seen: list[int] = []
    one = proof(seen)
    for seeds in ([0, 2], [1]):
        run_proof(one, work=tmp_path, commit="abc", on_trial=lambda _trial: None, seeds=seeds)
    assert seen == [0, 2, 1]
    assert sorted(known_trials(one, tmp_path, "abc")) == [0, 1, 2]
    assert known_trials(one, tmp_path, "def") == {}


def test_a_commit_of_docs_leaves_trials_standing(tmp_path: Path) -> None:
    def commit(name: str) -> str:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", name], check=True)
        return tried_commit(tmp_path)

    first = commit(f"{TRIED[0]}/a.py")
    assert commit("docs/a.md") == first
    second = commit(f"{TRIED[1]}/a.lark")
    assert second != first
    (tmp_path / TRIED[1] / "a.lark").write_text("changed")
    assert tried_commit(tmp_path) == f"{second}+"


def test_the_page(tmp_path: Path) -> None:
    one = proof([], bad={1})
    write_page(one, run(one, tmp_path), tmp_path / "p.md")
    text = (tmp_path / "p.md").read_text()
    assert text.startswith("# it holds\n")
    assert "| kills | 4 |" in text
    assert "| failed | 1 |" in text
    assert "- seed 1: 1 is bad" in text


def test_surroundings_are_entered_once_around_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | str] = []

    @contextmanager
    def surroundings() -> Iterator[None]:
        seen.append("begin")
        yield
        seen.append("end")

    def check(seed: int, folder: Path) -> dict[str, int]:
        seen.append(seed)
        return {}

    one = Proof(name="p", claim="it holds", method="by trying", seeds=range(3), check=check, surroundings=surroundings)
    monkeypatch.setattr(command, "find_proofs", lambda _folder: [one])
    monkeypatch.setattr(command, "tried_commit", lambda _root: "abc")
    monkeypatch.setattr(command, "HERE", tmp_path / "proof")
    monkeypatch.setattr(command, "WORK", tmp_path / "work")
    monkeypatch.setattr(command, "keep_tidy", lambda: None)

    command.main(only=None, show=False, workers=1, seed=None)

    assert seen == ["begin", 0, 1, 2, "end"]
    assert "| held | 3 |" in (tmp_path / "docs" / "proof" / "p.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_seed(tmp_path: Path) -> None:
    def check(seed: int, folder: Path) -> dict[str, int | str]:
        facts: dict[str, int | str] = {"Spark": f"4.{seed}", "passed": 5, "kills": 2}
        if seed == 1:
            raise RefutedError("two failed", facts)
        return facts

    one = Proof(
        name="p", claim="it holds", method="by trying", seeds=range(2), check=check, columns=("Spark", "passed")
    )
    write_page(one, run(one, tmp_path), tmp_path / "p.md")
    text = (tmp_path / "p.md").read_text(encoding="utf-8")
    table = "| Spark | passed | commit |\n|---|---|---|\n| 4.0 | 5 | abc |\n| 4.1 | 5 | abc |\n"
    assert table in text
    assert "| kills | 4 |" in text
    assert "| passed | 10 |" not in text
    assert "- seed 1: two failed" in text


def test_the_versions_that_are_proved_are_those_of_the_metadata() -> None:
    minors = {spark for spark, _ in versions.ENVIRONMENTS}
    assert minors == set(SUPPORTED)
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    language = "Programming Language :: Python :: "
    stated = [line.removeprefix(language) for line in metadata["classifiers"] if line.startswith(f"{language}3.")]
    assert stated == list(versions.PYTHONS)
    assert metadata["requires-python"] == f">={versions.PYTHONS[0]}"
    assert {python for _, python in versions.ENVIRONMENTS} == set(versions.PYTHONS)
