"""Reports of commands in forms for other programs: JSON, annotations, SARIF, JUnit.

Imports: ``errors``, ``plan``. Begin with ``check_reports``.
"""
