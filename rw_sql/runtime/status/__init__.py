"""Shows a warehouse to an operator: the owner, the jobs with lag and rates, unsafe operations, lineage, and the status
page. The module ``doctor`` finds and repairs inconsistencies for ``rw-sql doctor``.

Imports: every other package of ``runtime``, and the packages below ``runtime``. Begin with ``reading`` (the data),
``page`` (the layout) and ``http_server`` (the endpoints).
"""
