"""Controls statements and jobs: the executor of statements, the owner's lease, and the reconciler that starts and stops
jobs.

``inspector`` reads the facts that planning needs. ``rest_scheduler`` decides when jobs rest, and wakes jobs at rest.
``rest_conditions`` determines which jobs may rest, and contains the state of a job at rest.

Imports: every package of ``runtime`` below ``control``. Begin with ``executor`` (how a statement runs) and
``reconciler`` (how a job runs).
"""
