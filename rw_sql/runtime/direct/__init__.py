"""Contains the direct readers of views. A direct reader runs inside a view's own query, and reads a source that is not
shared.

The checkpoint of the view's query stores the positions of the view's direct readers.

Before the query starts, ``align_checkpoint`` changes the checkpoint to match the catalog.

From ``runtime``, this package may import only ``positions``, ``jobs``, ``decoding``, ``delta``, ``spark``
and ``support``. Begin with ``readers``.
"""
