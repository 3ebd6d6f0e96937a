"""The options of FORMAT … ENCODE … that determine where the schema of a source or sink is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.formats import (
    CONNECTION,
    LOCATION,
    MESSAGE,
    SCHEMA_ENCODES,
    STRATEGY,
    EncodeFault,
)
from rw_sql.connectors.schemas.client import ADDRESSES, address_fault
from rw_sql.connectors.spec import load_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC_NAME = "topic_name_strategy"
RECORD_NAME = "record_name_strategy"


def is_of_schema(key: str) -> bool:
    """True if ``key`` is an option that determines where the schema is."""
    return key == CONNECTION or load_spec("schema_registry").option(key) is not None


def needs_schema(encode: str, options: Mapping[str, str]) -> bool:
    """True if the columns come from a schema. This is the case for Avro and Protobuf, and for JSON with a registry or a
    location."""
    return encode in SCHEMA_ENCODES or (
        encode == "JSON" and any(key in options for key in (ADDRESSES, LOCATION, CONNECTION))
    )


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that :class:`~rw_sql.connectors.schemas.client.RegistryClient` needs."""
    known = load_spec("schema_registry").options
    return {key: value for key, value in options.items() if key in known and known[key].is_of_connection}


def subject_of(options: Mapping[str, str], topic: str, *, is_key: bool = False) -> str:
    """The subject of a topic's schema, according to ``schema.registry.name.strategy``."""
    strategy = (options.get(STRATEGY) or TOPIC_NAME).strip().lower()
    if strategy == TOPIC_NAME:
        return f"{topic}-{'key' if is_key else 'value'}"
    message = options.get(MESSAGE, "")
    return message if strategy == RECORD_NAME else f"{topic}-{message}"


def schema_fault(format: str, encode: str, options: Mapping[str, str], connector: str) -> EncodeFault | None:
    """The error of the first schema option that is missing or conflicts with other options; None if there is no error.

    The error messages are the same as RisingWave's.
    """
    if not needs_schema(encode, options):
        stray = next((key for key in options if is_of_schema(key)), None)
        if stray is None:
            return None
        return EncodeFault(
            key=stray,
            message=f'property "{stray}" has no meaning without {ADDRESSES} or {LOCATION}',
            hint=f"add {ADDRESSES} = 'http://registry:8081', or omit {stray}",
        )
    places = [key for key in (ADDRESSES, CONNECTION) if key in options]
    if LOCATION in options and places:
        return EncodeFault(
            key=LOCATION,
            message="only need either the schema location or the schema registry",
            hint=f"omit {LOCATION}, or {places[0]}",
        )
    if len(places) == 2:
        return EncodeFault(
            key=ADDRESSES,
            message=f'property "{ADDRESSES}" is set by the connection too',
            hint=f"omit {ADDRESSES}, or {CONNECTION}",
        )
    if LOCATION not in options and not places:
        return EncodeFault(
            key="",
            message="missing either a schema location or a schema registry",
            hint=f"ENCODE {encode} ({ADDRESSES} = 'http://registry:8081')",
        )
    if places and connector != "kafka":
        return EncodeFault(
            key=places[0],
            message="The connector must be kafka when schema registry is used",
            hint=f"read FORMAT {format} ENCODE JSON or BYTES",
        )
    if ADDRESSES in options and (wrong := address_fault(options[ADDRESSES])) is not None:
        return EncodeFault(key=ADDRESSES, message=wrong[1], hint=wrong[2])
    if LOCATION in options:
        return _location_fault(encode, options)
    return _name_fault(encode, options)


def _location_fault(encode: str, options: Mapping[str, str]) -> EncodeFault | None:
    if encode == "AVRO":
        return EncodeFault(
            key=LOCATION,
            message="schema.location is not supported for Avro: a record does not say with which schema it was written",
            hint=f"use {ADDRESSES} = 'http://registry:8081'",
        )
    stray = next((key for key in options if key.startswith("schema.registry.")), None)
    if stray is not None:
        return EncodeFault(
            key=stray,
            message=f'property "{stray}" has no meaning with {LOCATION}',
            hint=f"omit {stray}",
        )
    return _name_fault(encode, options)


def _name_fault(encode: str, options: Mapping[str, str]) -> EncodeFault | None:
    strategy = (options.get(STRATEGY) or TOPIC_NAME).strip().lower()
    if encode == "PROTOBUF" and not options.get(MESSAGE):
        return EncodeFault(
            key="",
            message="Must specify 'message' in WITH clause",
            hint="ENCODE PROTOBUF (message = 'package.Message', …)",
        )
    if strategy != TOPIC_NAME and not options.get(MESSAGE):
        return EncodeFault(
            key=STRATEGY,
            message=f"{strategy} requires a non-empty `message` field",
            hint="message = 'namespace.Record' names the record",
        )
    if encode != "PROTOBUF" and strategy == TOPIC_NAME and MESSAGE in options:
        return EncodeFault(
            key=MESSAGE,
            message=f"property \"{MESSAGE}\" has no meaning with {STRATEGY} = '{TOPIC_NAME}'",
            hint=f"omit {MESSAGE}, or set {STRATEGY} to {RECORD_NAME}",
        )
    return None
