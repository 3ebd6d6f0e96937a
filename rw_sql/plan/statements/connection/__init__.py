"""Lowers the statements on connections and secrets, and the statements that change connector options. After an option
or secret has changed, the jobs of the objects that use it restart.

From ``plan``, this package imports ``statements/common`` and the packages in the layers below ``statements``. Begin
with ``connection``.
"""
