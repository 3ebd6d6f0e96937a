"""Lowers the statements on connections and secrets, and the statements that change connector options. After such a
change, the objects that use a changed option restart.

From ``plan``, this package imports ``statements/common`` and the packages in the layers below ``statements``. Begin
with ``connection``.
"""
