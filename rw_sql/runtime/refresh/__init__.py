"""The job of REFRESH TABLE: loads an upstream as it is now, compares it with the table, commits what differs.


Imports: ``upkeep`` and the rooms below. Imported by: ``control``.
Begin with ``job``.
"""
