"""Contains the job of a sink. The job runs a query over a log, a view's table or a view's changes, and a connector's
writer writes the rows in batches.

Imports: ``upkeep``, ``positions`` and the packages below. Begin with ``job``.
"""
