"""Decodes the change formats. In these formats, records describe changes to the rows of a table.

The function ``rows.change_rows`` converts each change in a record to a row with the source's columns. A record may
contain no change, one change or several changes. ``_rw_op`` is 1 for a new or updated row, and -1 for a deleted row.
The row for a deleted row contains only the key. A record contains at most one change per key, so the columns
``_rw_split`` and ``_rw_offset`` determine the order of the changes to a key.

Within ``runtime``, this package imports only ``decoding.json_text`` and ``support``. Begin with the module ``rows``.
"""
