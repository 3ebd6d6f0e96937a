"""Defines the interface to facts outside the catalog. It consists of the protocol ``Inspector``, and of the records
that the inspector's methods return. ``Inspector`` consists of one small protocol (port) per topic.

The runtime implements the ports (``runtime/control/inspector.py``). For ``rw-sql check``, ``plan/offline`` implements
the ports, and the tests implement the ports with prepared values. Imports: ``model``, ``connectors``, ``checkpoints``.
Begin with ``inspector``.
"""
