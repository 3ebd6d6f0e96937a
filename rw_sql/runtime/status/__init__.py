"""A warehouse as an operator sees it: its owner, its jobs with lag and rates, unsafe operations, lineage; the page.

Imports: every room of ``runtime`` and what lies below. Imported by: ``session``, ``cli``.
Begin with ``reading`` (what is shown), ``page`` (how) and ``http_server`` (where).
"""
