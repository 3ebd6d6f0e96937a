"""Tokens that several parsers share."""

from __future__ import annotations

from sqlglot import parse_one, tokenize

from rw_sql.syntax.query.spark_tokens import spark_tokens
from rw_sql.syntax.query.tables_read import parse_spark

QUERY = "SELECT /* one */ a, count(*) AS n FROM t -- two\nGROUP BY a"


def _words(query: str) -> list[tuple[object, ...]]:
    return [
        (word.token_type, word.text, word.line, word.col, word.start, word.end, word.comments)
        for word in spark_tokens(query)
    ]


def test_tokens_are_those_of_sqlglot() -> None:
    assert _words(QUERY) == [
        (word.token_type, word.text, word.line, word.col, word.start, word.end, word.comments)
        for word in tokenize(QUERY, read="spark")
    ]


def test_a_caller_that_modifies_its_tokens_does_not_modify_those_of_the_next() -> None:
    before = [(*word[:-1], list(word[-1])) for word in _words(QUERY)]  # type: ignore[call-overload]
    for word in spark_tokens(QUERY):
        word.text += "x"
        word.comments.append("x")
    assert _words(QUERY) == before


def test_a_tree_that_is_parsed_again_has_its_comments_once() -> None:
    wanted = parse_one(QUERY, read="spark").sql(dialect="spark")
    assert [parse_spark(QUERY).sql(dialect="spark") for _ in range(3)] == [wanted] * 3
