"""Derives properties of a value from the text of a query: the value's type and sign, and its path in a JSON
document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


def cast_type(node: exp.Expr) -> str | None:
    """The type of a direct cast; None for other nodes."""
    from sqlglot import exp

    while isinstance(node, exp.Paren):
        node = node.this
    return node.to.this.name if isinstance(node, exp.Cast) else None


def is_fraction(node: exp.Expr) -> bool:
    """True if the node is certainly not an integer."""
    from sqlglot import exp

    if isinstance(node, exp.Literal):
        return node.is_number and not node.is_int
    if isinstance(node, exp.Cast):
        return node.to.this.name in ("FLOAT", "DOUBLE", "DECIMAL")
    if isinstance(node, (exp.Paren, exp.Neg)):
        return is_fraction(node.this)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return is_fraction(node.this) or is_fraction(node.expression)
    return isinstance(node, (exp.Avg, exp.Sqrt, exp.Exp, exp.Ln))


def is_whole(node: exp.Expr) -> bool:
    """True if a cast of the node to an integer never meets a fraction. This holds for integers, booleans and strings,
    because a string with a fraction cannot be cast to an integer."""
    from sqlglot import exp

    if isinstance(node, exp.Literal):
        return node.is_string or node.is_int
    if isinstance(node, exp.Paren):
        return is_whole(node.this)
    if isinstance(node, exp.Cast):
        return node.to.this.name in ("SMALLINT", "INT", "BIGINT", "VARCHAR", "TEXT", "BOOLEAN")
    return isinstance(
        node, (exp.Count, exp.Length, exp.Floor, exp.Ceil, exp.Round, exp.JSONExtractScalar, exp.RowNumber)
    )


def is_positive(node: exp.Expr | None) -> bool:
    """True if the node is missing (None), or is a constant of at least 1."""
    from sqlglot import exp

    return node is None or (isinstance(node, exp.Literal) and node.is_int and int(node.name) >= 1)


def is_index(node: exp.Bracket) -> bool:
    """True if the index in square brackets is a constant integer of at least 0."""
    from sqlglot import exp

    index = node.expressions[0]
    return isinstance(index, exp.Literal) and bool(index.is_int)


def json_path(node: exp.Expr) -> str | None:
    """The path of the chain of ``->`` that ends at this node; None if a step is not a constant."""
    from sqlglot import exp

    if not isinstance(node, (exp.JSONExtract, exp.JSONExtractScalar)):
        return "$"
    before = json_path(node.this)
    path = node.expression
    if before is None or not isinstance(path, exp.JSONPath):
        return None
    text = before
    for step in path.expressions:
        if isinstance(step, exp.JSONPathRoot):
            continue
        if isinstance(step, exp.JSONPathKey) and isinstance(step.this, str) and re.fullmatch(r"\w+", step.this):
            text += f".{step.this}"
        elif isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, int) and step.this >= 0:
            text += f"[{step.this}]"
        else:
            return None
    return text


def json_root(node: exp.Expr) -> exp.Expr:
    """The value at the start of the chain of ``->`` that ends at this node."""
    from sqlglot import exp

    while isinstance(node, (exp.JSONExtract, exp.JSONExtractScalar)):
        node = node.this
    return node
