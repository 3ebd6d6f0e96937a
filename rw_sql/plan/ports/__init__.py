"""The interface to facts outside the catalog: the protocol ``Inspector``, and the records that its methods return.
``Inspector`` consists of one small protocol (port) per topic.

The runtime implements the ports (``runtime/control/inspector.py``); ``rw-sql check`` implements them offline
(``plan/offline``), and the tests implement them with prepared values. Imports: ``model``,
``connectors``, ``checkpoints``. Begin with ``inspector``.
"""
