"""Lists words of Spark SQL. The grammar of rw_sql does not contain these words, because it treats queries as opaque
text."""

from __future__ import annotations

STATEMENT_WORDS = (
    "SELECT", "WITH", "VALUES", "INSERT INTO", "UPDATE", "DELETE FROM", "MERGE INTO", "CREATE TABLE", "CREATE VIEW",
    "DROP VIEW", "SHOW TABLES", "SHOW FUNCTIONS", "DESCRIBE", "EXPLAIN", "ANALYZE TABLE", "OPTIMIZE", "VACUUM", "USE",
    "CACHE TABLE", "TRUNCATE TABLE",
)  # fmt: skip
"""The first words of Spark's statements."""

QUERY_WORDS = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN",
    "INNER JOIN", "CROSS JOIN", "ON", "USING", "AS", "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "BETWEEN",
    "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "UNION ALL", "WITH", "VALUES", "OVER", "PARTITION BY", "ASC", "DESC",
    "CAST", "INTERVAL", "TRUE", "FALSE", "NULL", "EXISTS", "OFFSET",
)  # fmt: skip
"""The keywords of queries."""

TYPE_WORDS = (
    "BOOLEAN", "SMALLINT", "INT", "BIGINT", "REAL", "DOUBLE PRECISION", "NUMERIC", "VARCHAR", "BYTEA", "DATE",
    "TIMESTAMP", "TIMESTAMPTZ", "JSONB",
)  # fmt: skip
"""The types of columns in rw_sql's statements."""

SQL_WORDS = tuple(
    dict.fromkeys(word for phrase in (*STATEMENT_WORDS, *QUERY_WORDS, *TYPE_WORDS) for word in phrase.split())
)
