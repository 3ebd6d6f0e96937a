"""The job of a shared source: one stateless query decodes records from upstream and appends them to the source's log.

``warm_start`` and its neighbours prepare the restart after a move in advance.

Imports: ``upkeep``, ``positions`` and the packages below. Begin with ``job``.
"""
