"""Topics of an MQTT broker as sources. The broker stores no positions. Instead, the broker sends unacknowledged
messages again.

Imports: the public modules of ``connectors`` and ``support``. Begin with ``source``. The module ``session`` receives
and acknowledges messages through the client class in ``client``. All code outside this folder uses paho-mqtt only
through these modules.
"""
