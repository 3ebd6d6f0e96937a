"""Converts types to text: to the canonical form of rw_sql's statements, and to Spark's DDL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import UNSUPPORTED_TYPE, SqlError
from rw_sql.syntax.lexing.identifiers import quoted

if TYPE_CHECKING:
    from rw_sql.syntax.statements.common import DataType

_SPARK = {
    "BOOLEAN": "BOOLEAN",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "CHARACTER VARYING": "STRING",
    "CHARACTER": "STRING",
    "BYTEA": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "SERIAL": "BIGINT",
    "UUID": "STRING",
    # JSON is stored as its text, because delta-rs, one of the two writers, cannot write Delta's VARIANT.
    "JSONB": "STRING",
    # Spark has no interval that combines months, days and microseconds; this type covers most uses.
    "INTERVAL": "INTERVAL DAY TO SECOND",
    "RW_INT256": "DECIMAL(38, 0)",
    "RW_UINT256": "DECIMAL(38, 0)",
}
_WIDEST_DECIMAL = 38


def canonical_type(data_type: DataType) -> str:
    """The canonical form of a type: ``CHARACTER VARYING``, ``NUMERIC(10, 2)``, ``STRUCT<a INT>``, ``INT[]``."""
    name = data_type.name
    if name == "ARRAY" and data_type.element is not None:
        return canonical_type(data_type.element) + "[]"
    if name == "MAP" and data_type.key is not None and data_type.value is not None:
        return f"MAP({canonical_type(data_type.key)}, {canonical_type(data_type.value)})"
    if name == "STRUCT":
        fields = ", ".join(f"{quoted(f.name)} {canonical_type(f.data_type)}" for f in data_type.fields)
        return f"STRUCT<{fields or ' '}>"
    if data_type.arguments:
        return f"{name}({', '.join(map(str, data_type.arguments))})"
    return name


def spark_type(data_type: DataType) -> str:
    """Returns the type in Spark's DDL. TIMESTAMP becomes TIMESTAMP_NTZ, and TIMESTAMP WITH TIME ZONE becomes TIMESTAMP.

    JSONB becomes STRING (its text), and NUMERIC without a precision becomes DECIMAL(38, 10). Raises SqlError
    UNSUPPORTED_TYPE for TIME and decimals of more than 38 digits.
    """
    name = data_type.name
    if name == "ARRAY" and data_type.element is not None:
        return f"ARRAY<{spark_type(data_type.element)}>"
    if name == "MAP" and data_type.key is not None and data_type.value is not None:
        return f"MAP<{spark_type(data_type.key)}, {spark_type(data_type.value)}>"
    if name == "STRUCT":
        fields = ", ".join(f"`{f.name.replace('`', '``')}`: {spark_type(f.data_type)}" for f in data_type.fields)
        return f"STRUCT<{fields}>"
    if name == "NUMERIC":
        precision, scale = (*data_type.arguments, 0)[:2] if data_type.arguments else (_WIDEST_DECIMAL, 10)
        if precision > _WIDEST_DECIMAL:
            raise SqlError(
                UNSUPPORTED_TYPE,
                f"NUMERIC({precision}) has more than the {_WIDEST_DECIMAL} digits that Spark supports",
                span=data_type.span,
                hint=f"write NUMERIC({_WIDEST_DECIMAL})",
            )
        return f"DECIMAL({precision}, {scale})"
    if name not in _SPARK:
        raise SqlError(
            UNSUPPORTED_TYPE,
            f"Spark has no type for {name}",
            span=data_type.span,
            hint="declare it CHARACTER VARYING and CAST it in a materialized view",
        )
    return _SPARK[name]


def exact_spark_type(data_type: DataType) -> str:
    """Returns the type in Spark's DDL, as :func:`spark_type` does, but with TIMESTAMP_LTZ instead of TIMESTAMP. The
    text denotes the same type in every session.

    In a session whose setting ``spark.sql.timestampType`` is TIMESTAMP_NTZ, Spark reads TIMESTAMP as a time without a
    zone. Spark reads the text of a type with the settings of the session that is active in a thread of the JVM. This
    session may be the user's session, even if the type is for a query in a session for jobs.
    """
    if data_type.element is not None:
        return f"ARRAY<{exact_spark_type(data_type.element)}>"
    if data_type.key is not None and data_type.value is not None:
        return f"MAP<{exact_spark_type(data_type.key)}, {exact_spark_type(data_type.value)}>"
    if data_type.name == "STRUCT":
        fields = ", ".join(f"`{f.name.replace('`', '``')}`: {exact_spark_type(f.data_type)}" for f in data_type.fields)
        return f"STRUCT<{fields}>"
    kind = spark_type(data_type)
    return "TIMESTAMP_LTZ" if kind == "TIMESTAMP" else kind
