"""What planning reads of the world outside the catalog: the protocol ``Inspector``, made of one small protocol per
port, and the records that their methods return.

The runtime implements them (``runtime/control/inspector.py``), ``rw-sql check`` without a world (``plan/offline``), and
the tests with prepared values. Imports: ``model``. Imported by: every other room of ``plan``. Begin with ``inspector``.
"""
