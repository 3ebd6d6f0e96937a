"""Manages the Delta tables of jobs. The package reads the Delta logs of these tables, and manages their files and
checksums. It also writes batches, and fences them against a second writer.

The module ``compaction`` rewrites small files, ``table_files`` deletes files that no reader needs, and
``object_store_merge`` merges rows into a table in an object store.

From ``runtime``, this package may import only ``spark`` and ``support``. Begin with ``job_output`` (a
batch's commit) and ``delta_log``.
"""
