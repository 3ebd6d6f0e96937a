"""The job of a sink: a query over a log, a view's table or its changes, written in batches by a connector's writer.

Imports: ``upkeep``, ``positions`` and the packages below. Begin with ``job``.
"""
