"""Change formats: what upstream records say became of rows.

``rows.change_rows`` gives each record's changes as rows of the source's columns. ``_rw_op`` is 1 with a row as it is
from then on, and -1 where the row of a key goes; that one holds the key alone. A record may say nothing of the table
(no row), or change several rows (a row each). Of the changes of one record at most one has any given key, so that
(``_rw_split``, ``_rw_offset``) is the order of a key's changes. Begin with ``rows``.
"""
