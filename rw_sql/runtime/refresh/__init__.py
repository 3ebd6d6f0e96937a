"""The job of REFRESH TABLE: loads the current rows of the upstream, compares them with the table, and commits the
differences.

Imports: ``upkeep`` and the packages below. Begin with ``job``.
"""
