"""The grammar: no conflict, an example for every rule, and everything made from it up to date."""

from __future__ import annotations

import re
from functools import cache

import pytest

from rw_sql.assets import list_assets, read_asset
from rw_sql.syntax.__main__ import stale_files
from rw_sql.syntax.lexing.tokens import scan
from rw_sql.syntax.parsing.actions import RULES
from rw_sql.syntax.parsing.lalr_tables import Tables, build_tables, grammar_text, load_tables
from rw_sql.syntax.parsing.parser import Parser
from rw_sql.syntax.reference import Rule, rules_of

GRAMMAR_RULES = [
    rule for name in list_assets("grammar", ".lark") for rule in rules_of(read_asset("grammar", name).splitlines())
]


@cache
def all_rules() -> Tables:
    """Tables that can begin with any rule."""
    return load_tables(build_tables(grammar_text(), tuple(rule.name for rule in GRAMMAR_RULES)))


@pytest.mark.long
def test_builds_without_a_conflict() -> None:
    assert build_tables(grammar_text())["states"]


def test_a_conflict_would_be_an_error() -> None:
    from lark.exceptions import GrammarError

    with pytest.raises(GrammarError, match=r"[Cc]ollision|conflict"):
        build_tables("statement: a | b\na: NAME\nb: NAME\n%declare NAME\n")


@pytest.mark.long
@pytest.mark.parametrize("rule", GRAMMAR_RULES, ids=lambda rule: rule.name)
def test_every_rules_example_is_one(rule: Rule) -> None:
    tokens = scan(rule.example)
    Parser(rule.example, tokens, 0, len(tokens) - 1, rule=rule.name, by=all_rules()).parse()


def test_every_function_belongs_to_a_rule() -> None:
    text = re.sub(r"//[^\n]*", "", grammar_text())
    named = set(re.findall(r"^[!?]?([a-z_]+)\s*:", text, re.MULTILINE)) | set(re.findall(r"-> (\w+)", text))
    assert set(RULES) <= named


def test_what_is_made_from_the_grammar_is_up_to_date() -> None:
    assert stale_files() == [], "run python -m rw_sql.syntax"
