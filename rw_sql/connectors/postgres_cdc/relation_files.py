"""Reads from the server's catalog in which files PostgreSQL stores the rows of a table or of its partitions.

While a command such as VACUUM FULL, CLUSTER or TRUNCATE has locked a relation, the relation's size cannot be read
without waiting. All other properties can be read without waiting. Therefore, while such a command runs on one table,
the reader can still read the source's other tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg
    from psycopg import Connection
else:
    psycopg = deferred("psycopg")

_STORAGE = """c.oid::bigint, c.oid::regclass::text, c.relpersistence::text, c.relfilenode::text, c.xmin::text,
    c.reltoastrelid::text || '/' || coalesce(i.relfilenode::bigint, 0) || '/' || c.relam::text,
    (SELECT x::text FROM (VALUES (c.xmin), (i.xmin), (o.xmin)) v (x) WHERE x IS NOT NULL ORDER BY age(x) DESC LIMIT 1),
    (SELECT a.xmin::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = o.oid AND a.attnum = -1 AND a.xmin::text = i.xmin::text),
    pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
"""
_STORAGE_TABLES = """pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
LEFT JOIN pg_catalog.pg_class i ON i.oid = k.indexrelid
LEFT JOIN pg_catalog.pg_class o ON o.oid = c.reltoastrelid
"""
_EMPTY = """
SELECT s.id::bigint FROM unnest(%s::oid[], %s::text[]) s (id, file)
WHERE CASE WHEN pg_catalog.pg_relation_size(s.id) = 0 THEN pg_catalog.pg_relation_filenode(s.id)::text = s.file END
"""
"""Queries the relations that have no rows in the given files. The query waits for the locks of a TRUNCATE or a VACUUM
FULL. After one of these commands, the query returns the size of a new file, not the size of the file in the
transaction's snapshot."""

_LOCK_MILLISECONDS = 200
"""The maximum time in milliseconds for which the query of the sizes waits for a lock."""

_OWN_STORAGE = f"SELECT {_STORAGE} FROM {_STORAGE_TABLES} WHERE c.oid = %s::oid AND c.relkind = 'r'"

_PARTITIONS = f"""
WITH RECURSIVE part (id, attached, command) AS (
    SELECT i.inhrelid, i.xmin, i.cmin FROM pg_catalog.pg_inherits i WHERE i.inhparent = %s::oid
    UNION ALL
    SELECT i.inhrelid, CASE WHEN age(i.xmin) < age(part.attached) THEN i.xmin ELSE part.attached END,
        CASE WHEN age(i.xmin) < age(part.attached) THEN i.cmin ELSE part.command END
    FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.id)
SELECT part.attached::text, part.command::text,
    (SELECT a.xmin::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = part.id AND a.attnum = -1),
    {_STORAGE}
FROM part, {_STORAGE_TABLES} WHERE c.oid = part.id AND c.relkind = 'r'
"""
"""Queries the partitions of a table that are not partitioned further, because only these partitions store rows. For
each partition, the query returns the last transaction that attached the partition or one of the partitioned tables
above the partition, and the transaction that created the partition. The query finds the transaction that created the
partition from the row of a system column in the catalog, because no later command changes this row."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The files of a table or a partition.

    ``statement_name`` is the name in the server's quotes. ``altered`` is the transaction that last changed the
    relation's row in the catalog. The catalog also has a row for the relation's TOAST table and a row for the index of
    its primary key. ``rewritten`` is the oldest of the transactions that last changed these three catalog rows. All
    commands that rewrite the relation change the three catalog rows, and few later commands change all three.
    ``others`` are the TOAST table, the file of the index, and the access method. ``alter`` is the transaction that
    created the TOAST table, if this transaction also wrote the index. ``is_empty`` is True if the file has no rows.
    ``is_empty`` is False before :func:`with_sizes` reads the size, and if the relation is locked.
    """

    oid: int
    statement_name: str
    persistence: str
    file: str
    altered: str
    others: str
    rewritten: str
    alter: str | None
    is_readable: bool
    is_empty: bool = False

    @property
    def key(self) -> str:
        """The name of the trait with the value ``others``."""
        return f"storage {self.oid}"

    def is_moved(self, traits: Mapping[str, str]) -> bool:
        """True if the rows were only moved to another tablespace since ``traits`` were stored. A move does not change
        the index."""
        return self.key in traits and traits[self.key].split("/")[1] == self.others.split("/")[1]

    def has_other_toast(self, traits: Mapping[str, str]) -> bool:
        """True if the relation's TOAST table differs from the TOAST table in ``traits``. An ALTER TABLE that rewrites
        the rows creates a new TOAST table, but VACUUM FULL, CLUSTER and TRUNCATE do not."""
        return self.key in traits and traits[self.key].split("/")[0] != self.others.split("/")[0]

    def rewriter(self, traits: Mapping[str, str]) -> str:
        """The id of the transaction that last rewrote the rows, or of a later transaction."""
        return self.rewritten if self.key in traits else self.altered


@dataclass(frozen=True, slots=True)
class Partition:
    attached: str
    command: str
    created: str
    storage: Storage

    @property
    def name(self) -> str:
        """The partition's name in the server's quotes, for SQL statements."""
        return self.storage.statement_name

    @property
    def key(self) -> str:
        """The name of the partition's trait."""
        return f"partition {self.storage.oid}"

    @property
    def trait(self) -> str:
        """The value of the partition's trait: the transaction that attached the partition, the file of its rows,
        whether this file is empty, and the partition's name."""
        return f"{self.attached}/{self.storage.file}/{'empty' if self.storage.is_empty else 'rows'}/{self.name}"

    def is_rewritten(self, traits: Mapping[str, str]) -> bool:
        """True if the file of the partition's rows differs from the file in ``traits``. False if ``traits`` do not
        contain the partition, or if the partition was attached again."""
        attached, file, _, _ = traits.get(self.key, "///").split("/", 3)
        return attached == self.attached and file != self.storage.file


def own_storage(connection: Connection[Any], oid: int) -> Storage:
    """The files of a table that is not partitioned. Waits for no lock. Raises psycopg.Error."""
    (row,) = connection.execute(_OWN_STORAGE.encode(), [oid]).fetchall()
    return Storage(*row)


def partitions_of(connection: Connection[Any], oid: int) -> tuple[Partition, ...]:
    """Returns the partitions of a table that store rows themselves, and whether each of these partitions is empty. A
    partition that stays locked counts as not empty. Raises psycopg.Error."""
    rows = connection.execute(_PARTITIONS.encode(), [oid]).fetchall()
    stores = [Storage(*stored) for _, _, _, *stored in rows]
    before, *_ = connection.execute(b"SHOW lock_timeout").fetchone() or ("0",)
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
            stores = with_sizes(connection, stores)
            connection.execute(f"SET LOCAL lock_timeout = '{before}'".encode())
    except psycopg.errors.LockNotAvailable:
        pass
    return tuple(
        Partition(attached, command, created, storage)
        for (attached, command, created, *_), storage in zip(rows, stores, strict=True)
    )


def with_sizes(connection: Connection[Any], stores: Sequence[Storage]) -> list[Storage]:
    """The relations with their present values of ``is_empty``. Waits for locks. Raises psycopg.Error if the wait takes
    too long."""
    rows = connection.execute(_EMPTY.encode(), [[each.oid for each in stores], [each.file for each in stores]])
    empty = {id_ for (id_,) in rows.fetchall()}
    return [replace(each, is_empty=each.oid in empty) for each in stores]
