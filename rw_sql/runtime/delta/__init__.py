"""Manages the Delta tables of jobs. The package reads the Delta logs of these tables, writes batches that are fenced
against a second writer, and manages files and checksums.

The module ``compaction`` rewrites small files, ``table_files`` deletes files that no reader needs, and
``object_store_merge`` merges rows into a table in an object store.

Imports: ``spark``, ``support``. Begin with ``job_output`` (a batch's commit) and ``delta_log``.
"""
