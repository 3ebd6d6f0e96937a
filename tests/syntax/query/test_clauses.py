"""The clauses around a position in a query, for hints."""

from __future__ import annotations

import pytest

from rw_sql.syntax.query.clauses import having_hint, relations_before, result_clause


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT a FROM t WHERE sum(b) > 1", "write GROUP BY a HAVING sum(b) > 1 instead of WHERE sum(b) > 1"),
        (
            "SELECT t.a, `b c`, count(*) FROM t WHERE sum(b) > 1",
            "write GROUP BY t.a, `b c` HAVING sum(b) > 1 instead of WHERE sum(b) > 1",
        ),
        ("SELECT count(*) FROM t WHERE sum(b) > 1", "write HAVING sum(b) > 1 instead of WHERE sum(b) > 1"),
        ("SELECT a + 1 FROM t WHERE sum(b) > 1", "write GROUP BY … HAVING sum(b) > 1 instead of WHERE sum(b) > 1"),
        (
            "SELECT a FROM t WHERE sum(b) > 1 GROUP BY a ORDER BY a",
            "omit WHERE, and write HAVING sum(b) > 1 after GROUP BY",
        ),
        (
            "SELECT a FROM t WHERE c = 2 AND sum(b) > 1",
            "keep WHERE c = 2, and write GROUP BY a HAVING sum(b) > 1 after it",
        ),
        (
            "SELECT a FROM t WHERE c BETWEEN 2 AND 3 AND sum(b) > 1 AND count(*) > 2 GROUP BY a",
            "keep WHERE c BETWEEN 2 AND 3, and write HAVING sum(b) > 1 AND count(*) > 2 after GROUP BY",
        ),
        (
            "SELECT a FROM t WHERE c = 2 AND sum(b) > 1 GROUP BY a HAVING max(b) > 1",
            "keep WHERE c = 2, and add sum(b) > 1 to HAVING",
        ),
        (
            "SELECT a FROM t WHERE c = 2 OR sum(b) > 1",
            "write sum(…) AS a_name in a subquery with GROUP BY a, and the condition outside it",
        ),
        (
            "SELECT a FROM t WHERE c = 2 AND\nsum(b) > 1 AND d LIKE '%a\nb%'",
            "move only the part with sum(…) to HAVING, after GROUP BY a",
        ),
        (
            "SELECT x FROM (SELECT a AS x FROM t WHERE sum(b) > (1 + 2)) AS u WHERE x > 1",
            "write GROUP BY a HAVING sum(b) > (1 + 2) instead of WHERE sum(b) > (1 + 2)",
        ),
        (
            "SELECT a FROM t WHERE (sum(b) > 1) LIMIT 3",
            "write GROUP BY a HAVING (sum(b) > 1) instead of WHERE (sum(b) > 1)",
        ),
        (
            "SELECT a FROM t WHERE a IN (SELECT c FROM u) AND (sum(b)) > 1;",
            "keep WHERE a IN (SELECT c FROM u), and write GROUP BY a HAVING (sum(b)) > 1 after it",
        ),
    ],
)
def test_a_condition_with_an_aggregate_moves_to_having(query: str, hint: str) -> None:
    assert having_hint(query, query.index("sum("), "sum") == hint


def test_a_query_that_is_not_tokens_gets_a_general_hint() -> None:
    assert having_hint("SELECT 'a", 0, "sum") == "write the condition after GROUP BY, as HAVING sum(…) …"


@pytest.mark.parametrize(
    ("query", "relations"),
    [
        ("SELECT a FROM t ORDER BY zz", ["t"]),
        ("SELECT a FROM db.t AS x JOIN `my t` ON x.a = 1, u GROUP BY a HAVING max(zz) > 1", ["db.t", "`my t`", "u"]),
        ("SELECT a FROM (SELECT b AS a FROM t) AS x ORDER BY zz", [""]),
        ("SELECT a FROM range(3) SORT BY zz", [""]),
        ("SELECT zz FROM t ORDER BY a", None),
        ("SELECT a FROM t WHERE zz > 1 ORDER BY a", None),
        ("SELECT a FROM t GROUP BY zz", None),
        ("SELECT DISTINCT a FROM t ORDER BY zz", None),
        ("SELECT a FROM t UNION ALL SELECT a FROM u ORDER BY zz", None),
        ("SELECT a FROM t UNION ALL SELECT a FROM u GROUP BY a HAVING max(zz) > 1", ["u"]),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM u ORDER BY zz) ORDER BY a", ["u"]),
    ],
)
def test_relations_whose_columns_a_clause_after_from_may_name(query: str, relations: list[str] | None) -> None:
    assert relations_before(query, query.index("zz")) == relations


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT DISTINCT a FROM t ORDER BY zz", ("DISTINCT", "ORDER BY")),
        ("SELECT DISTINCT a FROM t SORT BY zz", ("DISTINCT", "SORT BY")),
        ("SELECT a FROM t UNION ALL SELECT a FROM u ORDER BY zz", ("UNION", "ORDER BY")),
        ("SELECT a FROM t ORDER BY zz", None),
        ("SELECT DISTINCT zz FROM t ORDER BY a", None),
        ("SELECT DISTINCT a FROM t GROUP BY a HAVING zz > 1", None),
        ("SELECT 'a ORDER BY zz", None),
    ],
)
def test_clauses_that_may_name_only_columns_of_the_result(query: str, found: tuple[str, str] | None) -> None:
    assert result_clause(query, query.index("zz")) == found
