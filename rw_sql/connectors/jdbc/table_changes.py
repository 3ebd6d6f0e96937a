"""Finds tables of PostgreSQL that were truncated, rewritten, replaced, attached, detached or created since the snapshot
of a transaction. The transaction can no longer read the snapshot's rows of such tables.

Spark's workers receive the code of this module with each task (pickled by value).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLES = """
WITH RECURSIVE root (id) AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = (pg_catalog.parse_ident(%(table)s)::name[])[1]
        AND c.relname = (pg_catalog.parse_ident(%(table)s)::name[])[2]
), edge (child, parent, is_pending) AS (
    SELECT i.inhrelid, i.inhparent, coalesce((pg_catalog.to_jsonb(i) ->> 'inhdetachpending')::boolean, false)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    WHERE c.relkind NOT IN ('i', 'I') AND c.relpersistence <> 't'
), tree (id) AS (
    SELECT id FROM root UNION SELECT e.child FROM edge e JOIN tree ON e.parent = tree.id WHERE NOT e.is_pending
), locked (id, name, is_known, is_moved) AS (
    SELECT l.relation, o.identity, c.oid IS NOT NULL,
        c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)
    FROM pg_catalog.pg_locks l
    CROSS JOIN LATERAL pg_catalog.pg_identify_object('pg_catalog.pg_class'::regclass, l.relation, 0) o
    LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation
    WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid() AND l.relation >= 16384 AND o.type <> 'index'
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
), lost (id, parent) AS (
    SELECT e.child, e.parent FROM edge e
    WHERE NOT e.is_pending AND e.parent IN (SELECT id FROM locked) AND e.child NOT IN (SELECT id FROM locked)
)
"""
"""The table, its descendants, and the tables that the transaction has locked, except system tables.

A query of the system catalog returns the state in the transaction's snapshot, whereas ``pg_relation_filenode`` and
``pg_identify_object`` return the current state. ``edge`` contains the inheritance in the snapshot; PostgreSQL does not
read a partition whose DETACH … CONCURRENTLY is pending in the snapshot (since PostgreSQL 14, a column of
``pg_inherits`` shows this state). Temporary tables that inherit from the table are skipped, because a query does not
read the temporary tables of other sessions. ``lost`` contains children that the query does not read, although the query
reads their parent. Either such a child was detached, or the query excludes it by ONLY or by a condition on the
partition key."""

_UNCLEAR = f"""
{_TABLES}
SELECT id FROM locked WHERE id NOT IN (SELECT id FROM tree) UNION SELECT id FROM lost
"""
"""Selects the ids of the tables for which :data:`_CHANGED` must check the current parents in order to decide whether
the table has changed."""

_PARENTS = """
SELECT i.inhrelid::bigint, i.inhparent::bigint,
    coalesce((pg_catalog.to_jsonb(i) ->> 'inhdetachpending')::boolean, false)
FROM pg_catalog.pg_inherits i WHERE i.inhrelid = ANY(%s::oid[])
"""

_CHANGED = f"""
{_TABLES}, now (child, parent, is_pending) AS (
    SELECT (v ->> 0)::oid, (v ->> 1)::oid, (v ->> 2)::boolean FROM pg_catalog.jsonb_array_elements(%(now)s::jsonb) v
    WHERE (v ->> 1)::oid IN (SELECT id FROM locked)
)
SELECT %(table)s::text, 'replaced' WHERE NOT EXISTS (SELECT FROM root WHERE id IN (SELECT id FROM locked))
UNION ALL
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), 'detached or dropped'
FROM lost JOIN pg_catalog.pg_class c ON c.oid = lost.id JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE NOT EXISTS (SELECT FROM now WHERE now.child = lost.id AND now.parent = lost.parent)
UNION ALL
SELECT name, 'created' FROM locked
WHERE NOT is_known AND NOT EXISTS (SELECT FROM now WHERE now.child = locked.id)
UNION ALL
SELECT name, 'attached' FROM locked JOIN now ON now.child = locked.id
WHERE is_known AND NOT EXISTS (
    SELECT FROM edge e
    WHERE e.child = now.child AND e.parent = now.parent AND (now.is_pending OR NOT e.is_pending)
)
UNION ALL
SELECT name, 'truncated or rewritten' FROM locked WHERE is_moved
LIMIT 1
"""
"""Finds a table that a query reads and that has changed since the transaction's snapshot: it is another table, or its
rows are in another file. Returns the name of the table, and a word for the change. ``now`` contains the current parents
of the unclear tables.

A child that was created after the snapshot is not a change, because the snapshot sees none of the child's rows. The
exception is a child whose rows COPY … FREEZE wrote in the transaction that created the child, because every snapshot
sees such rows."""


def require_same_tables(connection: Any, table: str, server: Mapping[str, Any]) -> None:
    """Checks that the tables that the transaction has locked still contain the rows of the transaction's snapshot.

    ``table`` is the quoted name of the table that the part belongs to. ``server`` contains the parameters for a further
    connection.

    TRUNCATE, and statements that rewrite a table, also affect earlier snapshots: the rows that such a snapshot should
    see are gone, or have moved to other pages. The read of a part locks the tables only until the part is read. If the
    tables were locked for the whole refresh, a TRUNCATE would wait for the refresh, and the remaining parts of the
    refresh would wait for the TRUNCATE. PostgreSQL does not detect this deadlock.

    Raises RuntimeError if a table has been truncated, rewritten, replaced, attached or detached since the snapshot.
    """
    import psycopg

    unclear = [row[0] for row in connection.execute(_UNCLEAR.encode(), {"table": table})]
    now: list[Any] = []
    if unclear:  # This transaction sees the snapshot's inheritance. A new transaction sees the current state.
        with psycopg.connect(**server, autocommit=True) as other:
            now = other.execute(_PARENTS.encode(), [unclear]).fetchall()
    found = connection.execute(_CHANGED.encode(), {"table": table, "now": json.dumps(now)}).fetchone()
    if found is not None:
        raise RuntimeError(f"table {found[0]} was {found[1]} during the read: run REFRESH TABLE again")
