"""The hints of the change data capture connectors contain statements that can be typed."""

from __future__ import annotations

import pytest

from rw_sql.connectors.mysql_cdc import server as mysql
from rw_sql.connectors.postgres_cdc import server as postgres
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements.source import ResetSourceSplits


@pytest.mark.parametrize("hint", [mysql.AGAIN, postgres.AGAIN])
def test_the_statement_that_reads_the_tables_again_can_be_typed(hint: str) -> None:
    text, verb, _ = hint.partition(" reads every table again")
    assert verb
    statement = parse_statement(text.replace("SOURCE_NAME", "shop"))
    assert isinstance(statement, ResetSourceSplits)
    assert statement.name.key == "shop"
    assert statement.is_forgetting_offsets
    assert statement.allow == ("GAPS",)
