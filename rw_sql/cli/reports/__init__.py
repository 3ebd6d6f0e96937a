"""Reports of commands in forms for other programs: JSON, annotations, SARIF, JUnit.

Imports: ``errors``, ``plan``. Imported by: the commands of ``cli``. Begin with ``check_reports``.
"""
