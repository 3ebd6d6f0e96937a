"""Reports of commands in the forms that other programs read: JSON, annotations, SARIF, JUnit.

Imports: ``errors``, ``plan``. Imported by: the commands of ``cli``.
Begin with ``check_reports``.
"""
