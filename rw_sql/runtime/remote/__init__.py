"""Implements sessions without a JVM: both the part in the session's process and the part in the owner's process. Such a
session passes its statements to the owner, which runs them.

The module ``request_messages`` defines the JSON in which a request and its answer are stored.

From ``runtime``, this package may import only ``control`` and the packages below ``control``. Begin with
``remote_executor`` (in the session's process) and ``request_server`` (in the owner's process).
"""
