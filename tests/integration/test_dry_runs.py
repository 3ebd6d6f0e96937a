"""A dry run explains each statement on the catalog as the statements before it leave it, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from rw_sql.runtime.control.dry_run import DryRun
    from tests.integration.attached import AttachedSession

pytestmark = pytest.mark.spark


def explained(dry: DryRun, text: str) -> str:
    return "\n".join(dry.explain(parse_statement(text)).lines)


def refused(dry: DryRun, text: str) -> str:
    with pytest.raises(SqlError) as caught:
        dry.explain(parse_statement(text))
    return caught.value.code


def is_open(dry: DryRun) -> bool:
    """Whether a block is open. A function, because a type checker treats a property as constant."""
    return dry.has_open_block


@pytest.mark.long
def test_statements_rest_on_those_before_them(session: AttachedSession) -> None:
    session.run(
        "CREATE SOURCE old (id INT) WITH (connector = 'datagen', datagen.rows.total = '10')",
        "CREATE MATERIALIZED VIEW old_rows AS SELECT id FROM old",
        "FLUSH",
    )
    before = session.epoch()
    dry = session.attached.dry_run()
    create = "CREATE SOURCE s (a INT, b VARCHAR) WITH (connector = 'datagen', datagen.rows.total = '10')"
    unknown = ("RW203", "RW205", "RW215")
    assert refused(dry, "CREATE MATERIALIZED VIEW m AS SELECT a FROM s") in unknown
    assert "CreateObject source s" in explained(dry, create)
    assert refused(dry, create) == "RW201"
    assert "CreateObject materialized view m" in explained(
        dry, "CREATE MATERIALIZED VIEW m AS SELECT a, b, count(*) AS n FROM s GROUP BY a, b"
    )
    assert "CreateObject materialized view m2" in explained(dry, "CREATE MATERIALIZED VIEW m2 AS SELECT a, n FROM m")
    assert refused(dry, "CREATE MATERIALIZED VIEW m3 AS SELECT c FROM m") in unknown
    assert refused(dry, "DROP SOURCE s") == "RW306"
    assert dry.has_object(parse_statement("DROP SOURCE s").name)  # type: ignore[attr-defined]
    explained(dry, "DROP MATERIALIZED VIEW m2")
    explained(dry, "DROP MATERIALIZED VIEW m")
    explained(dry, "DROP SOURCE s")
    assert not dry.has_object(parse_statement("DROP SOURCE s").name)  # type: ignore[attr-defined]
    # A source that runs is paused by the script, as far as INJECT is concerned.
    assert refused(dry, "INJECT SOURCE OFFSETS old VALUES ('0' = 5)") == "RW305"
    explained(dry, "PAUSE SOURCE old")
    assert refused(dry, "INJECT SOURCE OFFSETS old VALUES ('0' = 5)") == "RW303"
    explained(dry, "ALTER SYSTEM SET enable_unsafe_ops = true")
    foreseen = dry.explain(parse_statement("INJECT SOURCE OFFSETS old VALUES ('0' = 5)"))
    assert foreseen.needs_confirmation
    assert "in all: DUPLICATES 5, GAP 0" in "\n".join(foreseen.lines)
    explained(dry, "BEGIN UNSAFE")
    assert is_open(dry)
    explained(dry, "INJECT SOURCE OFFSETS old VALUES ('0' = 3)")
    assert refused(dry, "DROP SOURCE old CASCADE") == "RW331"
    assert dry.explain(parse_statement("COMMIT")).needs_confirmation
    assert not is_open(dry)
    assert "sets query_dialect" in explained(dry, "SET query_dialect = 'risingwave'")
    assert "waits until every record" in explained(dry, "FLUSH")
    assert session.epoch() == before
    assert session.job("old").state == "RUNNING"
