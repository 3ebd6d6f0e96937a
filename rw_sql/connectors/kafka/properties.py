"""Converts a Kafka source's options to the options of librdkafka and of Spark's reader (the Java client).

RisingWave's options ``properties.*`` have librdkafka's names. For most of these names, ``sources/kafka.toml`` contains
the equivalent name in the Java client. This module combines the other options, which concern login, trust and keys,
because the Java client accepts these only as one JAAS line and as PEM stores.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.connectors.kafka.spark_reader import REQUEST_TIMEOUT
from rw_sql.connectors.spec import OptionError, duration_seconds
from rw_sql.errors import INVALID_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.spec import ConnectorSpec, OptionSpec

# Administrative clients and producers refuse or ignore these options.
CONSUMER_ONLY = frozenset(
    {
        "properties.fetch.wait.max.ms",
        "properties.fetch.max.bytes",
        "properties.fetch.queue.backoff.ms",
        "properties.queued.min.messages",
        "properties.queued.max.messages.kbytes",
        "properties.isolation.level",
    }
)
_CALL_TIMEOUT = "properties.sync.call.timeout"
_USER, _PASSWORD = "properties.sasl.username", "properties.sasl.password"
_POLL_MILLISECONDS = 30_000
"""The time in milliseconds for which a task waits for records that are known to exist, unless twice the time limit of a
request is longer."""

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def admin_properties(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    """The properties of librdkafka's administrative client."""
    made: dict[str, str] = {}
    for key, value in options.items():
        option = spec.option(key)
        if option is not None and option.client is not None and key not in CONSUMER_ONLY:
            made[option.client] = _worded(option, value)
    return made


def reader_properties(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    """The properties of librdkafka's consumers. These are the properties of :func:`admin_properties` and ``group.id``,
    the consumer group of the source's readers.

    These consumers read only partitions that are assigned to them, and commit nothing. A consumer group is still
    needed, because the client looks up the coordinator of its group, and brokers with access control require a
    permission for this request.
    """
    group = spec.value(options, "group.id") or f"{spec.value(options, 'group.id.prefix')}-rw_sql"
    return {**admin_properties(spec, options), "group.id": group}


def producer_properties(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    """The properties of librdkafka's producer.

    ``spec`` is the sink's spec. Options that only apply to readers are left out.
    """
    made: dict[str, str] = {}
    for option in spec.options.values():
        value = spec.value(options, option.key)
        if option.client is not None and value is not None and option.key not in CONSUMER_ONLY:
            made[option.client] = _worded(option, value)
    if "sasl.mechanism" not in made:
        made.pop("sasl.kerberos.service.name", None)
    return made


def spark_options(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's Kafka reader, without splits and positions."""
    made: dict[str, str] = {}
    for option in spec.options.values():
        value = spec.value(options, option.key)
        if option.spark is not None and value is not None:
            made[option.spark] = _worded(option, value)
    if "kafka.group.id" in made:
        made.pop("groupIdPrefix", None)
    security = _security(spec, options)
    if security.get("kafka.sasl.mechanism") != "GSSAPI":
        made.pop("kafka.sasl.kerberos.service.name", None)
    return made | security | _timeouts(spec, options)


def call_timeout(spec: ConnectorSpec, options: Mapping[str, str], limit: float) -> float:
    """The time limit in seconds for one request to the brokers: ``limit``, or the value of the timeout option if this
    value is lower."""
    wanted = duration_seconds(options.get(_CALL_TIMEOUT, ""))
    return limit if wanted is None else min(wanted, limit)


def _timeouts(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    # A query that is stopped ends only when its clients' calls have timed out. If no broker responds, the calls time
    # out after a minute by default.
    call = int(1000 * (duration_seconds(spec.value(options, _CALL_TIMEOUT) or "") or 5.0))
    wait = int(spec.value(options, "properties.fetch.wait.max.ms") or 0)
    request = max(call, wait + 1000)
    return {
        REQUEST_TIMEOUT: str(request),
        "kafka.default.api.timeout.ms": str(request),
        "kafkaConsumer.pollTimeoutMs": str(max(_POLL_MILLISECONDS, 2 * request)),
    }


def check_security(options: Mapping[str, str]) -> None:
    """Checks that the options for login and encryption are consistent. Raises SqlError INVALID_PROPERTY."""
    _require_one_line(options)
    protocol = options.get("properties.security.protocol", "plaintext").strip().lower()
    sasl = sorted(key for key in options if key.startswith("properties.sasl."))
    if protocol.startswith("sasl"):
        mechanism = options.get("properties.sasl.mechanism", "GSSAPI").strip().upper()
        needed = (_USER, _PASSWORD)
        if mechanism == "GSSAPI":
            needed = ("properties.sasl.kerberos.keytab", "properties.sasl.kerberos.principal")
        for key in needed:
            if key not in options:
                raise OptionError(
                    INVALID_PROPERTY,
                    f'property "{key}" is needed to log in by {mechanism}',
                    key="properties.sasl.mechanism",
                    hint=f"add {key} = SECRET s" if key.endswith("password") else f"add {key} = '…'",
                )
    elif sasl:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{sasl[0]}\" has no meaning with properties.security.protocol = '{protocol}'",
            key=sasl[0],
            hint="set properties.security.protocol to sasl_ssl or sasl_plaintext",
        )
    ssl = sorted(key for key in options if key.startswith("properties.ssl."))
    if ssl and not protocol.endswith("ssl"):
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{ssl[0]}\" has no meaning with properties.security.protocol = '{protocol}'",
            key=ssl[0],
            hint="set properties.security.protocol to ssl or sasl_ssl",
        )
    has_key = any(key in options for key in ("properties.ssl.key.pem", "properties.ssl.key.location"))
    has_certificate = any(
        key in options for key in ("properties.ssl.certificate.pem", "properties.ssl.certificate.location")
    )
    if has_key != has_certificate:
        given, lacking = ("key", "certificate") if has_key else ("certificate", "key")
        key = next(key for key in ssl if f".{given}." in key)
        raise OptionError(
            INVALID_PROPERTY,
            f'property "{key}" needs the client\'s {lacking} too',
            key=key,
            hint=f"add properties.ssl.{lacking}.pem or properties.ssl.{lacking}.location",
        )


def login_misfit(options: Mapping[str, str]) -> OptionError | None:
    """The error if the user name or the password contains a line break; otherwise None.

    The JAAS line of the Java client cannot contain a line break. Usually, the line break comes from the text from which
    the user copied the value.
    """
    for key in (_USER, _PASSWORD):
        if "\n" in options.get(key, "") or "\r" in options.get(key, ""):
            hint = "ALTER SECRET a_secret AS '…', on one line" if key == _PASSWORD else f"write {key} on one line"
            return OptionError(INVALID_PROPERTY, f'property "{key}" contains a line break', key=key, hint=hint)
    return None


def _require_one_line(options: Mapping[str, str]) -> None:
    misfit = login_misfit(options)
    if misfit is not None:
        raise misfit


def _worded(option: OptionSpec, value: str) -> str:
    """Returns an option's value in the form that the clients expect. Blanks around the value are removed, except around
    a password."""
    if option.is_secret and not option.key.endswith(".pem"):
        return value
    key, text = option.key, value.strip()
    if key == "properties.sasl.mechanism":
        return text.upper()
    if key in ("properties.security.protocol", "properties.isolation.level"):
        return text.lower()
    if key == "properties.ssl.endpoint.identification.algorithm":
        return text.lower()
    return text


def _security(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    protocol = (spec.value(options, "properties.security.protocol") or "plaintext").strip().upper()
    made = {"kafka.security.protocol": protocol}
    if protocol.endswith("SSL"):
        made |= _stores(spec, options)
    if protocol.startswith("SASL"):
        mechanism = options.get("properties.sasl.mechanism", "GSSAPI").strip().upper()
        made["kafka.sasl.mechanism"] = mechanism
        made["kafka.sasl.jaas.config"] = _jaas(mechanism, options)
    return made


def _stores(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    algorithm = spec.value(options, "properties.ssl.endpoint.identification.algorithm") or "https"
    made["kafka.ssl.endpoint.identification.algorithm"] = "" if algorithm.strip().lower() == "none" else "https"
    if authority := _pem(options, "ca"):
        made |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": authority}
    certificate, key = _pem(options, "certificate"), _pem(options, "key")
    if certificate and key:
        made |= {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": certificate,
            "kafka.ssl.keystore.key": _java_key(key, options.get("properties.ssl.key.password")),
        }
    return made


def _java_key(pem: str, password: str | None) -> str:
    """Returns a private key for the Java client. The key has the format PKCS #8 and no password, because not every JVM
    can decrypt keys."""
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(pem.encode(), password.encode() if password else None)
    except (ValueError, TypeError) as error:
        raise OptionError(
            INVALID_PROPERTY,
            "the client's private key is not PEM, or its password is wrong or missing",
            key="properties.ssl.key.pem",
            hint="give a key that begins with -----BEGIN, and its password as properties.ssl.key.password",
        ) from error
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _pem(options: Mapping[str, str], part: str) -> str | None:
    if text := options.get(f"properties.ssl.{part}.pem"):
        return text
    if path := options.get(f"properties.ssl.{part}.location"):
        try:
            return Path(path.strip()).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                INVALID_PROPERTY,
                f'property "properties.ssl.{part}.location": the file cannot be read',
                key=f"properties.ssl.{part}.location",
                hint=f"give a path that this process can read, or properties.ssl.{part}.pem = '…'",
            ) from error
    return None


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    if mechanism == "GSSAPI":
        keytab = _quoted(options.get("properties.sasl.kerberos.keytab", "").strip())
        principal = _quoted(options.get("properties.sasl.kerberos.principal", "").strip())
        return (
            f"{_KERBEROS_MODULE} required useKeyTab=true storeKey=true doNotPrompt=true "
            f"keyTab={keytab} principal={principal};"
        )
    _require_one_line(options)
    user = _quoted(options.get(_USER, "").strip())
    password = _quoted(options.get(_PASSWORD, ""))
    return f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"


def _quoted(text: str) -> str:
    """A value escaped for the double quotes of a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
