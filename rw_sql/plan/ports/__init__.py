"""Defines the interface to facts outside the catalog. The interface consists of the protocol ``Inspector``, of one
protocol (*port*) per topic, and of the records that the ports' methods return. Each property of ``Inspector`` returns a
port.

There are three implementations: ``runtime/control/inspector.py`` for sessions, ``plan/offline`` for ``rw-sql check``,
and prepared values in the tests. This package may import only ``model``, ``checkpoints``, and the layers below
``model``, such as ``connectors``. Begin with ``inspector``.
"""
