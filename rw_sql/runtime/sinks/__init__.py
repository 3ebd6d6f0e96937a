"""Contains the job of a sink. The job runs a query over a log, a view's table or a view's changes. The writer of a
connector writes the resulting rows to the target in batches.

From ``runtime``, this package may import only ``upkeep``, ``positions`` and the packages below these.
Begin with ``job``.
"""
