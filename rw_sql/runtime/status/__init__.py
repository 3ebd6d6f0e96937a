"""A warehouse from an operator's point of view: its owner, jobs with lag and rates, unsafe operations, lineage, and
the status page. ``doctor`` finds and repairs inconsistencies, for ``rw-sql doctor``.

Imports: every other package of ``runtime``, and the packages below ``runtime``. Begin with ``reading`` (the data),
``page`` (the layout) and ``http_server`` (the endpoints).
"""
