"""Lists the words and symbols of expressions: operators with their precedence, units of time, and words that cannot be
names."""

from __future__ import annotations

WITHOUT_COMMA = "omit the comma"
"""The hint for a trailing comma."""


def trailing_comma(following: str) -> str:
    """Returns the error message for a trailing comma. The comma is before the word ``following``."""
    return f"trailing comma before {following or 'the end'}"


def missing_by(word: str) -> tuple[str, str]:
    """The error message and the hint for ``GROUP`` or ``ORDER`` without ``BY``."""
    return f"BY is missing after {word}", f"write {word} BY"


# Precedence as in PostgreSQL: https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-PRECEDENCE
OR, XOR, AND, NOT, IS, COMPARE, LIKE, BETWEEN, OTHER, PLUS, TIMES, POWER, AT, SIGN, POSTFIX = range(1, 16)

INFIX = {
    **dict.fromkeys(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"), COMPARE),
    **dict.fromkeys(
        [
            "~",
            "~*",
            "!~",
            "!~*",
            "~~",
            "~~*",
            "!~~",
            "!~~*",
            "||",
            "|",
            "&",
            "<<",
            ">>",
            "#",
            "->",
            "->>",
            "#>",
            "#>>",
            "#-",
            "@>",
            "<@",
            "?",
            "?|",
            "?&",
            "@?",
            "@@",
            "^@",
            "<->",
            "<#>",
            "<+>",
        ],
        OTHER,
    ),
    **dict.fromkeys(("+", "-"), PLUS),
    **dict.fromkeys(("*", "/", "%"), TIMES),
    "^": POWER,
}
PREFIXES = frozenset({"+", "-", "~", "@", "!", "|/", "||/", "!!"})
LIKES = frozenset({"LIKE", "ILIKE", "RLIKE", "REGEXP"})
UNITS = frozenset(["YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"])
UNITS = UNITS | {unit + "S" for unit in UNITS}
NUMBER_SUFFIXES = frozenset({"L", "S", "Y", "D", "F", "BD"})
STRING_PREFIXES = frozenset({"R", "X", "B", "N"})
NEVER_NAMES = frozenset({"CAST", "EXISTS", "EXTRACT", "INTERVAL", "OVERLAY", "ROW", "SUBSTRING", "TRIM", "TRY_CAST"})
NEED_ARGUMENTS = frozenset({
    "SUM", "MIN", "MAX", "AVG", "FIRST_VALUE", "LAST_VALUE", "LAG", "LEAD", "STRING_AGG", "ARRAY_AGG", "JSONB_AGG",
    "BOOL_AND", "BOOL_OR", "STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP", "PERCENTILE_CONT", "PERCENTILE_DISC",
    "APPROX_COUNT_DISTINCT", "COLLECT_LIST", "COLLECT_SET", "COALESCE", "NULLIF", "GREATEST", "LEAST", "ABS",
    "ROUND", "FLOOR", "CEIL", "LOWER", "UPPER", "LENGTH", "TRIM", "SUBSTR", "REPLACE", "EXPLODE", "UNNEST",
    "DATE_TRUNC", "TO_CHAR", "TO_TIMESTAMP", "TUMBLE", "HOP", "SESSION", "WINDOW", "GENERATE_SERIES",
})  # fmt: skip
"""The functions that require at least one argument."""
NO_COLUMNS = frozenset({
    "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_DATE", "CURRENT_ROLE", "CURRENT_SCHEMA", "CURRENT_TIME",
    "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIME", "LOCALTIMESTAMP", "SESSION_USER", "USER",
})  # fmt: skip
"""Names that are values without being columns, such as ``current_date``."""
ORDERED_BY_ONE = frozenset({"PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_PERCENTILE", "MODE"})
QUANTIFIERS = frozenset({"ALL", "ANY", "SOME"})
CONDITIONS = QUANTIFIERS | {"EXISTS"}
"""The words that begin a form with a boolean result. A boolean has no fields to select."""


WORD_POWERS = {
    "OR": OR,
    "XOR": XOR,
    "AND": AND,
    "IS": IS,
    "ISNULL": IS,
    "NOTNULL": IS,
    "IN": BETWEEN,
    "BETWEEN": BETWEEN,
    "SIMILAR": LIKE,
    "DIV": TIMES,
    "COLLATE": SIGN,
    **dict.fromkeys(LIKES, LIKE),
}
