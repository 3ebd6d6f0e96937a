"""Converts bytes of the log, which may have any character set, to text exactly as the server does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.mysql_cdc.connection import code_of, rows_of
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Callable

    import pymysql
    from pymysql.connections import Connection
else:
    pymysql = deferred("pymysql")

BINARY = 63
"""The id of the collation ``binary``."""

_CODECS = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4", "ascii"), "utf-8"),
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5",
    "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "cp949",
}  # fmt: skip
"""Multi-byte character sets, each with Python's codec."""

_COLLATIONS = (
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL",
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL",
)
"""Two queries that return the ids of collations with their character sets. The first query is for MariaDB 10.10 and
later, whose view COLLATIONS has no ids."""

_NO_COLUMN = 1054


class Charsets:
    """The character sets of a server."""

    def __init__(self, sql: Callable[[], Connection[Any]]) -> None:
        self._sql = sql
        self._names: dict[int, str] = {}
        self._decoders: dict[str, Callable[[bytes], str]] = {}

    def name_of(self, collation: int) -> str:
        """The character set of a collation. Raises pymysql.Error."""
        if not self._names:
            for query in _COLLATIONS:
                try:
                    self._names |= {int(number): str(name) for number, name in rows_of(self._sql(), query)}
                    break
                except pymysql.Error as error:
                    if code_of(error) != _NO_COLUMN:
                        raise
        return self._names.get(collation, f"collation {collation}")

    def decoder(self, name: str) -> Callable[[bytes], str]:
        """Returns the function that decodes strings of a character set. The returned function raises ValueError for
        invalid bytes. This method raises pymysql.Error."""
        if name not in self._decoders:
            self._decoders[name] = self._made(name)
        return self._decoders[name]

    def _made(self, name: str) -> Callable[[bytes], str]:
        codec = _CODECS.get(name)
        if codec is not None:
            return lambda data: data.decode(codec)
        width = rows_of(
            self._sql(), "SELECT MAXLEN FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME = %s", [name]
        )
        if width != [(1,)]:

            def refuse(_data: bytes) -> str:
                raise ValueError(f"has the character set {name}, which rw_sql does not support")

            return refuse
        # Uses the server's own conversion of all 256 bytes, because the server's latin1 is neither ISO 8859-1 nor
        # Python's cp1252.
        every = "".join(f"{byte:02x}" for byte in range(256))
        ((converted,),) = rows_of(self._sql(), f"SELECT HEX(CONVERT(CONVERT(x'{every}' USING {name}) USING utf32))")
        table = dict(enumerate(bytes.fromhex(converted).decode("utf-32-be")))
        return lambda data: data.decode("latin-1").translate(table)
