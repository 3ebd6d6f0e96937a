"""Direct readers: views that read a source by themselves. Spark's checkpoint is the position.

Before the query starts, ``align_checkpoint`` changes the checkpoint to match the catalog.

Imports: ``positions``, ``jobs``, ``decoding``, ``delta`` and below. Imported by: ``views``, ``observe``, ``control``.
Begin with ``readers``.
"""
