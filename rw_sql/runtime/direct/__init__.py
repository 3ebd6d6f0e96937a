"""Direct readers, which are readers inside a view's own query. They read sources that views do not share.

The checkpoint of the view's query stores the positions of the direct readers.

Before the query starts, ``align_checkpoint`` changes the checkpoint to match the catalog.

Imports: ``positions``, ``jobs``, ``decoding``, ``delta`` and the packages below these. Begin with ``readers``.
"""
