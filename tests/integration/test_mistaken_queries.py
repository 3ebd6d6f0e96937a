"""The error for a mistaken query, wherever it is typed: the mistake, its place, and a hint.

``tests/fixtures/mistakes/queries.sql`` has the statements, separated by blank lines; the ``.txt`` file beside it has
the errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, ParseException

from rw_sql.errors import SqlError
from rw_sql.session.scripts import run_statements
from tests.conftest import FIXTURES, rendered
from tests.integration.attached import AttachedSession
from tests.syntax.parsing.test_syntax_errors import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.session.scripts import StatementText

pytestmark = pytest.mark.spark

QUERIES = FIXTURES / "mistakes" / "queries.sql"
_COLUMNS = "(id INT, customer VARCHAR, amount INT) WITH (connector = 'datagen', datagen.rows.total = '3')"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachedSession]:
    """Sources ``orders`` and ``purchases`` and views ``totals`` and ``purchases_read`` that can be read."""
    session = AttachedSession(spark, str(tmp_path_factory.mktemp("shop") / "warehouse"))
    session.run(
        f"CREATE SOURCE orders {_COLUMNS}",
        "CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer",
        f"CREATE SOURCE raw_purchases {_COLUMNS}",
        "CREATE MATERIALIZED VIEW purchases AS SELECT id, customer, amount FROM raw_purchases",
        "FLUSH",
    )
    yield session
    session.detach()


def refusal(shop: AttachedSession, text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        shop.sql(text.replace("${warehouse}", shop.warehouse))
    return caught.value


@pytest.mark.long
def test_mistaken_queries(shop: AttachedSession, recorded: Callable[[Path, str], None]) -> None:
    told = []
    for text in blocks(QUERIES):
        error = refusal(shop, text)
        shown = rendered(error).replace(shop.warehouse, "${warehouse}")
        assert error.span is not None, shown
        if "${warehouse}" in text:
            shown = re.sub(r"\^+", "^", shown)  # as long as the path is
        assert "_rw_" not in shown.replace("_rw_bucket", "") or "_rw_" in text, shown
        told.append(f"{text}\n\n{shown}")
    recorded(QUERIES.with_suffix(".txt"), "\n\n".join(told))


@pytest.mark.long
def test_programs_that_catch_sparks_classes_go_on_working(shop: AttachedSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        shop.sql("SELECT custmer FROM totals")
    assert caught.value.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert (caught.value.getMessageParameters() or {})["objectName"] == "`custmer`"
    assert str(caught.value).startswith("RW205: ")
    with pytest.raises(ParseException):
        shop.sql("SHOW SOURCS")
    with pytest.raises(AnalysisException, match='RW203: relation "totls" does not exist'):
        shop.spark.table("totls")
    with pytest.raises(AnalysisException, match='RW203: relation "totls" does not exist'):
        shop.spark.read.table("totls")


def test_a_source_without_an_end_hides_no_comment_without_an_end(shop: AttachedSession) -> None:
    shop.run("CREATE SOURCE endless (id INT) WITH (connector = 'datagen')")
    try:
        for text, place in (("SELECT 1 /* in/*.csv of endless */", 15), ("SELECT 'x FROM endless", 8)):
            with pytest.raises(ParseException, match="RW102: ") as caught:
                shop.sql(text)
            assert isinstance(caught.value, SqlError)
            assert caught.value.column == place
    finally:
        shop.run("DROP SOURCE endless")


def collect(_: StatementText, result: DataFrame | None) -> None:
    assert result is not None
    result.collect()


def test_a_script_names_the_place_of_its_mistake(shop: AttachedSession) -> None:
    script = "SHOW SOURCES;\n\nSELECT customer,\n       '🙂' AS face, custmer\nFROM totals;\n"
    with pytest.raises(SqlError) as caught:
        run_statements(shop.spark, script, "shop.sql", answer=None, on_result=lambda *_: None)
    error = caught.value
    assert (error.code, error.file, error.line, error.column) == ("RW205", "shop.sql", 4, 21)
    assert str(error).splitlines()[2] == " " * 28 + "^" * len("custmer")
    with pytest.raises(SqlError, match=r"RW409: .*DIVIDE_BY_ZERO.*\n.*SELECT 1 / 0"):
        run_statements(shop.spark, "SELECT 1 / 0", None, answer=None, on_result=collect)
