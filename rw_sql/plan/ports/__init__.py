"""The facts outside the catalog that planning reads: the protocol ``Inspector``, made of one small protocol per port,
and the records that their methods return.

The runtime implements the ports (``runtime/control/inspector.py``), ``rw-sql check`` implements them offline
(``plan/offline``), and the tests with prepared values. Imports: ``model``. Imported by: every other room of ``plan``.
Begin with ``inspector``.
"""
