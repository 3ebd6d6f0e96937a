"""Parses text into statements, and renders statements as canonical text. Does not use Spark.

``parse_script(text, file=None) -> tuple[Statement, ...]`` parses statements that are separated by ``;``.
``render(statement) -> str`` renders one statement in canonical form. Errors are instances of
:class:`rw_sql.errors.SqlError` with a position in the text.

From ``rw_sql``, this package may import only ``assets``, ``errors`` and ``format_words``. Begin with ``routing``, which
decides whether a statement belongs to rw_sql or to Spark, and with ``parsing/script.py``. The grammar is in
``grammar/``.
"""

from __future__ import annotations

from rw_sql.syntax.lexing.first_words import could_be_ours
from rw_sql.syntax.parsing.script import ScriptStatement, parse, parse_script, parse_statement, split_script
from rw_sql.syntax.rendering.merge import merge_options
from rw_sql.syntax.rendering.render import render
from rw_sql.syntax.rendering.type_names import canonical_type, exact_spark_type, spark_type
from rw_sql.syntax.routing import CatalogView, route

__all__ = [
    "CatalogView",
    "ScriptStatement",
    "canonical_type",
    "could_be_ours",
    "exact_spark_type",
    "merge_options",
    "parse",
    "parse_script",
    "parse_statement",
    "render",
    "route",
    "spark_type",
    "split_script",
]
