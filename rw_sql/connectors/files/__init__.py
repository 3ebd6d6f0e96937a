"""Files in folders and object stores: sources of CSV, JSON lines and Parquet, and a sink that writes files.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. A split is a file, and an offset
counts bytes of the file.
"""
