"""Contains the job that carries out REFRESH TABLE. The job loads the current rows of the upstream, compares them with
the table's rows, and commits the differences.

From ``runtime``, this package may import only ``upkeep`` and the packages below ``upkeep``. Begin with
``job``.
"""
