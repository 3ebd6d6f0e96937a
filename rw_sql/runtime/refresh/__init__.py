"""The job of REFRESH TABLE: loads the current upstream, compares it with the table, commits the differences.

Imports: ``upkeep`` and the rooms below. Imported by: ``control``. Begin with ``job``.
"""
