"""Change formats: upstream records that describe changes to rows.

``rows.change_rows`` converts each record's changes to rows with the source's columns. ``_rw_op`` is 1 for a new or
updated row, and -1 for a deleted key. A row for a deleted key contains only the key. A record may contain no change, or
several changes, each of which becomes a row. A record has at most one change per key, so that (``_rw_split``,
``_rw_offset``) orders the changes of a key.

Imports: the rest of ``decoding`` except ``decoder``. Begin with ``rows``.
"""
