"""Who runs what: the executor of statements, the owner's lease, and the reconciler that starts and stops jobs.

``inspector`` answers the requests of lowerings.

Imports: every other room of ``runtime``. Imported by: ``session``.
Begin with ``executor`` (a statement's way) and ``reconciler`` (a job's).
"""
