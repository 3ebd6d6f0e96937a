"""Keeps a Kafka client's secrets out of Spark's options, logs and pages.

The JVM gets references instead of values, and reads the values itself by Kafka's own ``DirectoryConfigProvider`` from
files that only this user can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN = frozenset({"kafka.sasl.jaas.config", "kafka.ssl.keystore.key"})
"""Spark's option names whose values are secrets."""

_PROVIDER = "rw_sql"


def hide(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with references in place of secrets."""
    made = dict(options)
    secrets = {key: value for key, value in options.items() if key in HIDDEN}
    if secrets:
        files = {key: private_file(value) for key, value in secrets.items()}
        made |= {key: f"${{{_PROVIDER}:{file.parent}:{file.name}}}" for key, file in files.items()}
        made["kafka.config.providers"] = _PROVIDER
        made[f"kafka.config.providers.{_PROVIDER}.class"] = (
            "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
        )
    return made
