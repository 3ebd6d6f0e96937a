"""Files in folders and object stores: sources of CSV, JSON lines and Parquet, and the sink that writes them.


Imports: the public modules of ``connectors`` and ``support``.
Begin with ``source``; a split is a file, its offset counts bytes.
"""
