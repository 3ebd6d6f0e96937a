"""The interface to facts outside the catalog: the protocol ``Inspector``, which consists of one small protocol
(port) per topic, and the records that the methods return.

The runtime implements the ports (``runtime/control/inspector.py``); ``rw-sql check`` implements them offline
(``plan/offline``), and the tests implement them with prepared values. Imports: ``model``. Begin with ``inspector``.
"""
