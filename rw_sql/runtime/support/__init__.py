"""The lowest layer of ``runtime``. It contains fault points, events, threads, secrets, processes, and the files of a
warehouse.

Imports no other package of ``runtime``. Begin with ``warehouse``, which defines every path, and ``faults``.
"""
