"""Controls statements and jobs. The package contains the executor of statements, the owner of the warehouse, and the
reconciler that starts and stops jobs. (The lease itself is in ``jobs/lease.py``.)

``inspector`` reads the facts that planning needs. ``rest_conditions`` determines which jobs may rest and whether a job
has been quiet for long enough, and defines the state of a job at rest. ``rest_scheduler`` lets these jobs rest, and
wakes jobs at rest. ``retries`` determines the delay before a failed or stalled job starts again.

Imports: every package of ``runtime`` below ``control``. Begin with ``executor`` (how a statement runs) and
``reconciler`` (how a job runs).
"""
