"""Contains the two ends of a session without a JVM. Such a session passes its statements to the owner, which runs them.

The module ``request_messages`` defines the JSON in which a request and its answer are stored.

Imports: ``control`` and the packages below it. Begin with ``remote_executor`` (the session's end) and
``request_server`` (the owner's end).
"""
