"""A warehouse from an operator's view: its owner, its jobs with lag and rates, unsafe operations, lineage; the status
page.

Imports: every room of ``runtime`` and the packages below. Imported by: ``session``, ``cli``. Begin with ``reading``
(the data), ``page`` (the layout) and ``http_server`` (the endpoints).
"""
