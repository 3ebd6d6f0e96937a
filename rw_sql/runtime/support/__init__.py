"""The lowest layer of ``runtime``: code for fault points, events, threads, secrets, processes, and the files of a
warehouse.

This package must not import any other package of ``runtime``. Begin with ``warehouse``, which defines every path in a
warehouse, and ``faults``.
"""
