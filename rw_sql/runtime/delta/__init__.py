"""The Delta tables of jobs: reads their Delta logs, writes batches fenced against a second writer, and manages files
and checksums.

``compaction`` rewrites small files, ``table_files`` deletes files that no reader needs, and ``object_store_merge``
merges rows into a table in an object store.

Imports: ``spark``, ``support``. Begin with ``job_output`` (a batch's commit) and ``delta_log``.
"""
