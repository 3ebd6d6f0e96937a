"""Direct readers: readers inside a view's own query, for sources that views do not share.

Spark's checkpoint stores their positions.

Before the query starts, ``align_checkpoint`` changes the checkpoint to match the catalog.

Imports: ``positions``, ``jobs``, ``decoding``, ``delta`` and below. Begin with ``readers``.
"""
