"""The lowest layer: fault points, events, threads, secrets, processes, and the files of a warehouse.

Imports: no other room. Begin with ``warehouse`` (every path) and ``faults``.
"""
