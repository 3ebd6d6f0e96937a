"""The job of a sink: a query from a log, a view's table or its changes, in batches to a connector's writer.


Imports: ``upkeep``, ``positions`` and the rooms below. Imported by: ``control``.
Begin with ``job``.
"""
