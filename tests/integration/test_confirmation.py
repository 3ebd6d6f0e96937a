"""A confirmation is valid for one request only, whoever gives it."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

import rw_sql
from rw_sql.errors import SqlError
from rw_sql.session.scripts import answering
from tests.integration.attached import AttachedSession
from tests.integration.world import nothing_changes, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORGET = "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)"
LAST = "INJECT SOURCE OFFSETS s TO LATEST"


@pytest.fixture
def paused(session: AttachedSession) -> AttachedSession:
    """A session with a paused source ``s`` of 20 rows, nobody to ask, and unsafe operations enabled."""
    session.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20', paused = 'true')",
        "ALTER SYSTEM SET enable_unsafe_ops = true",
    )
    return session


def refusal(session: AttachedSession, text: str) -> tuple[SqlError, str]:
    """The refusal of a statement that nobody confirms, and its token; nothing has changed."""
    with nothing_changes(session.warehouse), pytest.raises(SqlError) as caught:
        session.sql(text)
    assert caught.value.code == "RW304"
    token = re.search(r"CONFIRM '(\w+)'", caught.value.hint or "")
    assert token is not None
    return caught.value, token[1]


def test_confirm_does_what_was_shown_once(paused: AttachedSession) -> None:
    error, token = refusal(paused, LAST)
    assert "GAP 20" in str(error)
    assert [row.change for row in paused.sql(f"CONFIRM '{token}'")] == ["INJECTED"]
    assert paused.positions("s") == {"1-0": 20}
    with nothing_changes(paused.warehouse), pytest.raises(SqlError, match="belongs to no refused statement"):
        paused.sql(f"CONFIRM '{token}'")
    refusal(paused, FORGET)


def test_confirm_is_refused_once_the_source_has_changed(paused: AttachedSession) -> None:
    _, token = refusal(paused, LAST)
    paused.run("SET unsafe_confirmation = 'yes'", "INJECT SOURCE OFFSETS s VALUES ('0' = 5) ALLOW GAPS")
    with nothing_changes(paused.warehouse), pytest.raises(SqlError) as caught:
        paused.sql(f"CONFIRM '{token}'")
    assert caught.value.code == "RW304"
    assert "GAP 15" in str(caught.value)
    assert f"'{token}'" not in (caught.value.hint or "")


@pytest.mark.long
def test_confirm_is_refused_once_the_source_has_run_on(paused: AttachedSession) -> None:
    error, token = refusal(paused, "INJECT SOURCE OFFSETS s VALUES ('0' = 5)")
    assert "GAP 5" in str(error)
    paused.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM s", "RESUME SOURCE s", "FLUSH", "PAUSE SOURCE s")
    with nothing_changes(paused.warehouse), pytest.raises(SqlError) as caught:
        paused.sql(f"CONFIRM '{token}'")
    assert "DUPLICATES 15" in str(caught.value)


def test_confirm_of_another_session_is_refused(paused: AttachedSession) -> None:
    _, token = refusal(paused, LAST)
    other = AttachedSession(paused.spark.newSession(), paused.warehouse)
    try:
        with nothing_changes(paused.warehouse), pytest.raises(SqlError, match="belongs to no refused statement"):
            other.sql(f"CONFIRM '{token}'")
    finally:
        other.detach()


def test_an_advance_confirmation_is_used_up_by_the_next_unsafe_statement(paused: AttachedSession) -> None:
    paused.run("SET unsafe_confirmation = 'yes'", "SHOW SOURCES", "PAUSE SOURCE s", f"{LAST} ALLOW GAPS")
    refusal(paused, FORGET)


def test_an_advance_confirmation_does_not_cover_what_allow_does_not_name(paused: AttachedSession) -> None:
    paused.run("SET unsafe_confirmation = 'yes'")
    error, token = refusal(paused, LAST)
    assert "GAP 20" in str(error)
    assert "needs ALLOW GAPS in the statement" in (error.hint or "")
    paused.run(f"CONFIRM '{token}'")
    assert paused.positions("s") == {"1-0": 20}


def test_an_advance_confirmation_is_used_up_by_a_statement_that_is_wrong(paused: AttachedSession) -> None:
    paused.run("SET unsafe_confirmation = 'yes'")
    with pytest.raises(SqlError, match="no split"):
        paused.sql("INJECT SOURCE OFFSETS s VALUES ('7' = 1)")
    refusal(paused, LAST)


def test_a_yes_does_not_replace_the_switch(paused: AttachedSession) -> None:
    paused.run("ALTER SYSTEM SET enable_unsafe_ops = false", "SET unsafe_confirmation = 'yes'")
    paused.answer(True)
    before = state_of(paused.warehouse)
    with pytest.raises(SqlError, match="are not enabled"):
        paused.sql(LAST)
    assert paused.questions == []
    assert state_of(paused.warehouse) == before


def test_the_question_is_asked_once_with_the_preview(paused: AttachedSession) -> None:
    paused.answer(True)
    paused.run(LAST)
    (question,) = paused.questions
    assert question.statement == LAST
    assert "GAP 20" in question.preview
    assert re.fullmatch(r"[0-9a-f]{12}", question.token)


def test_in_a_notebook_a_cells_confirm_and_yes_stand_for_an_answer(
    paused: AttachedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    from rw_sql.magics.cell import StatementMagic

    shell = InteractiveShell()
    shell.user_ns["spark"] = paused.spark
    magic = StatementMagic(shell)
    with nothing_changes(paused.warehouse), pytest.raises(SqlError) as caught:
        magic.run("", LAST)
    token = re.search(r"CONFIRM '(\w+)'", caught.value.hint or "")
    assert token is not None
    with nothing_changes(paused.warehouse), pytest.raises(SqlError, match="was not confirmed"):
        magic.run("--confirm 000000000000", LAST)
    magic.run(f"--confirm {token[1]}", LAST)
    assert "GAP 20" in capsys.readouterr().out
    assert paused.positions("s") == {"1-0": 20}
    magic.run("--yes", FORGET + "; INJECT SOURCE OFFSETS s VALUES ('0' = 5) ALLOW GAPS")
    assert paused.positions("s") == {"1-0": 5}
    with nothing_changes(paused.warehouse), pytest.raises(SqlError, match="RW304"):
        magic.run("--yes", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")


class Typed(io.StringIO):
    """What an operator types at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_session_that_a_startup_file_attaches_asks_at_the_prompt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("sys.ps1", raising=False)  # Other tests use IPython, which sets it.
    monkeypatch.setattr("sys.stdin", Typed("no\n"))
    attached = rw_sql.attach(spark, str(tmp_path / "warehouse"), run_jobs=False)
    try:
        assert attached.ask is None
        with answering(spark, None):
            pass
        monkeypatch.setattr("sys.ps1", ">>> ", raising=False)  # Python sets it after the startup file.
        with answering(spark, None):
            assert attached.ask is None
        spark.sql("CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '20', paused = 'true')")
        spark.sql("ALTER SYSTEM SET enable_unsafe_ops = true")
        with pytest.raises(SqlError, match="was not confirmed"):
            spark.sql(LAST)
        attached.ask = None
        with pytest.raises(SqlError) as caught:
            spark.sql(LAST)
        assert "CONFIRM '" in (caught.value.hint or "")
    finally:
        rw_sql.detach(spark)
