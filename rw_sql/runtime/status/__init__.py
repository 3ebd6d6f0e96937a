"""Reports the status of a warehouse to an operator: the owners, the jobs with lag and rates, unsafe operations, and
lineage. Serves the status page and metrics over HTTP. The module ``doctor`` finds and repairs inconsistencies for
``rw-sql doctor``.

This package may import every other package of ``runtime``, and the packages below ``runtime``. Begin with ``reading``
(the data), ``page`` (the layout) and ``http_server`` (the endpoints).
"""
