"""Decides what runs: the executor of statements, the owner's lease, and the reconciler that starts and stops jobs.

``inspector`` reads the facts that planning needs.

Imports: every other room of ``runtime``. Imported by: ``session``. Begin with ``executor`` (how a statement runs) and
``reconciler`` (how a job runs).
"""
