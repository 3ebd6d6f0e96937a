"""The lowest layer: fault points, events, threads, secrets, processes, and the files of a warehouse.

Imports: no other room. Imported by: all of them. Begin with ``warehouse`` (every path) and ``faults``.
"""
