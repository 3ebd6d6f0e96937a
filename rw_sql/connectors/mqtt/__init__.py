"""Topics of an MQTT broker as sources. The broker keeps no positions: it repeats unacknowledged messages.

Imports: the public modules of ``connectors``. Begin with ``source``; ``session`` receives messages and acknowledges
them. All other rooms use paho-mqtt only through these.
"""
