"""Determines, for each type of connection, which connectors use it and which options it accepts.

A connector's spec marks the options that may be set in a connection.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rw_sql.connectors.plain import PlainConnector
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.schemas.client import address_fault
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec
from rw_sql.errors import MISSING_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.spec import ConnectorSpec


REGISTRY = "schema_registry"
"""The connection type for schema registries. A connection of this type is named in FORMAT … ENCODE … (…), not in
WITH."""


@cache
def connection_types() -> tuple[str, ...]:
    """The valid values of ``type`` in CREATE CONNECTION, sorted."""
    return tuple(sorted({*_sources(), *_sinks(), REGISTRY}))


def is_of_sources(kind: str) -> bool:
    """True if sources use connections of this type. Sources that only REFRESH TABLE reads do not count, because they
    have no positions.

    For such a connection, :meth:`Connector.look` returns the identity of the cluster.
    """
    return kind in _sources()


@cache
def connection_spec(kind: str) -> ConnectorSpec:
    """The spec that contains a connection type's options. Only those options of the spec that are marked for
    connections belong to the type."""
    if kind == REGISTRY:
        return load_spec(REGISTRY)
    return connector(_sources()[kind]).spec if is_of_sources(kind) else sink_connector(_sinks()[kind]).spec


def connection_source(kind: str) -> str:
    """The source connector that uses and checks connections of this type."""
    return _sources()[kind]


def connection_sink(kind: str) -> str:
    """The sink connector that checks connections of this type, for types that no source uses."""
    return _sinks()[kind]


def place_of(kind: str, key: str) -> str | None:
    """The hint for an option that this connection type does not have. The hint names the place where the option can be
    set, or the option that the user probably meant. Returns None if neither is known."""
    for other in connection_types():
        known = connection_spec(other).option(key)
        if known is not None and known.is_of_connection:
            return f"omit {key}: connections of type '{other}' have this property"
    sources = [spec for name in connector_names() if not (spec := connector(name).spec).is_batch]
    sinks = [sink_connector(name).spec for name in sink_connector_names()]
    own = [spec for spec in sources if (spec.connection_kind or spec.name) == kind]
    for option in (option for spec in own for option in spec.options.values()):
        if option.key == key and option.connection_key is not None:
            return f'did you mean "{option.connection_key}"?'
    for user, specs in (("source", sources), ("sink", sinks)):
        if any((spec.connection_kind or spec.name) == kind and spec.option(key) is not None for spec in specs):
            return f"omit {key} here: CREATE {user.upper()} … WITH ({key} = …) accepts it"
    return None


def check_connection_options(kind: str, options: Mapping[str, str]) -> None:
    """Checks that a connection's options are consistent, without contacting a server. Raises OptionError."""
    spec = connection_spec(kind)
    if kind == REGISTRY:
        _check_registry(spec, options)
        return
    # Placeholders for required options that the source or sink will set.
    foreign = {
        option.key: "unset" for option in spec.options.values() if option.is_required and not option.is_of_connection
    }
    if "location" in foreign:
        foreign["location"] = "s3://unset"
    check_option_values(spec, {**foreign, **options})
    user = connector(_sources()[kind]) if is_of_sources(kind) else sink_connector(_sinks()[kind])
    stand_ins = user.connection_stand_ins if isinstance(user, PlainConnector) else {}
    user.check_options({**foreign, **stand_ins, **options})


def _check_registry(spec: ConnectorSpec, options: Mapping[str, str]) -> None:
    check_option_values(spec, options)
    address = next(iter(spec.options))
    if address not in options:
        raise OptionError(
            MISSING_PROPERTY,
            f'missing property "{address}"',
            key=address,
            hint=f"add {address} = 'http://registry:8081' to WITH",
        )
    if (wrong := address_fault(options[address])) is not None:
        raise OptionError(wrong[0], wrong[1], key=address, hint=wrong[2])


@cache
def _sources() -> Mapping[str, str]:
    """The connection types of sources, each with the source connector that uses it."""
    specs = {name: connector(name).spec for name in connector_names()}
    return {
        spec.connection_kind or name: name
        for name, spec in specs.items()
        if _has_connections(spec) and not spec.is_batch
    }


@cache
def _sinks() -> Mapping[str, str]:
    """The connection types of sinks, each with the first sink that uses it."""
    specs = {name: sink_connector(name).spec for name in reversed(sink_connector_names())}
    return {spec.connection_kind or name: name for name, spec in specs.items() if _has_connections(spec)}


def _has_connections(spec: ConnectorSpec) -> bool:
    return any(option.is_of_connection for option in spec.options.values())
