"""Keeps a Kafka client's secrets out of Spark's options, logs and web interface.

Options passed to the JVM contain references instead of secret values. Kafka's ``DirectoryConfigProvider`` resolves
these references from files that only this user can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.support.private_files import SecretText, private_file, share_with_executors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.spec import ConnectorSpec

HIDDEN = frozenset(
    {
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "kafka.ssl.keystore.certificate.chain",
        "kafka.ssl.truststore.certificates",
    }
)
"""The options of Spark's reader whose values may contain secrets."""

_PROVIDER = "rw_sql"


def renamed_secrets(spec: ConnectorSpec, options: Mapping[str, str]) -> frozenset[str]:
    """Returns the names under which a source's secret options are passed to Spark's reader. The result includes only
    options whose values are passed to the client unchanged."""
    named = (spec.option(key) for key, value in options.items() if isinstance(value, SecretText))
    return frozenset(option.spark for option in named if option is not None and option.spark is not None)


def hide(options: Mapping[str, str], also: frozenset[str] = frozenset()) -> dict[str, str]:
    """Replaces the values of secret options, and of the options in ``also``, with references."""
    made = dict(options)
    secrets = {key: value for key, value in options.items() if key in HIDDEN | also}
    if secrets:
        files = {key: private_file(value) for key, value in secrets.items()}
        share_with_executors(files.values())
        made |= {key: f"${{{_PROVIDER}:{file.parent}:{file.name}}}" for key, file in files.items()}
        made["kafka.config.providers"] = _PROVIDER
        made[f"kafka.config.providers.{_PROVIDER}.class"] = (
            "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
        )
    return made
