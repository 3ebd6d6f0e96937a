"""Decodes change formats, in which upstream records describe changes to rows.

The function ``rows.change_rows`` converts the changes in each record to rows with the source's columns. ``_rw_op`` is 1
for a new or updated row, and -1 for a deleted key. A row for a deleted key contains only the key. A record may contain
no change, one change or several changes. Each change becomes a row. Because a record has at most one change per key,
the columns ``_rw_split`` and ``_rw_offset`` determine the order of the changes of a key.

Imports: the rest of ``decoding`` except ``decoder``. Begin with ``rows``.
"""
