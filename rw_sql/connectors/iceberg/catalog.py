"""Opens catalogs and tables according to the options of a source or a sink."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from rw_sql.connectors.spec import OptionError
from rw_sql.connectors.support.connections.shared_clients import SharedClients
from rw_sql.connectors.support.messages import without_secrets
from rw_sql.errors import INVALID_PROPERTY, MISSING_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from rw_sql.connectors.spec import ConnectorSpec

_JDBC = "jdbc:"
_SECRETS = ("catalog.jdbc.password", "catalog.token", "catalog.credential", "s3.secret.key")
_LIMITS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""The libpq parameters for the connection to a catalog's database. They are time limits after which libpq closes a
connection to a server that no longer responds. Without these limits, a statement could wait for hours. Parameters in
the URL take precedence."""


class TableMissingError(Exception):
    """Raised if the catalog, or its database, does not contain the table."""


class CatalogError(Exception):
    """Raised if the catalog or the table's files cannot be read. The message contains no secret."""


def check_catalog(spec: ConnectorSpec, options: Mapping[str, str]) -> None:
    """Checks that the options of the catalog are consistent. Raises OptionError if they are not."""
    kind = _kind(spec, options)
    uri = options["catalog.uri"].strip()
    _require_no_login(kind, uri)
    if kind == "jdbc" and not uri.startswith((f"{_JDBC}sqlite:", f"{_JDBC}postgresql:")):
        raise OptionError(
            INVALID_PROPERTY,
            "property \"catalog.uri\" must begin with jdbc:postgresql: or jdbc:sqlite: if catalog.type = 'jdbc'",
            key="catalog.uri",
            hint="catalog.uri = 'jdbc:postgresql://host:5432/database'",
        )
    if kind == "rest" and not uri.startswith(("http://", "https://")):
        raise OptionError(
            INVALID_PROPERTY,
            "property \"catalog.uri\" must begin with http:// or https:// if catalog.type = 'rest'",
            key="catalog.uri",
            hint="catalog.uri = 'http://host:8181'",
        )
    if kind == "jdbc" and "warehouse.path" not in options:
        raise OptionError(
            MISSING_PROPERTY,
            'missing property "warehouse.path"',
            key="catalog.type",
            hint="catalog.type = 'jdbc' needs warehouse.path: the folder or the bucket of the tables",
        )
    other = "catalog.jdbc." if kind == "rest" else ("catalog.token", "catalog.credential", "catalog.scope")
    for key in options:
        if key.startswith(other):
            raise OptionError(
                INVALID_PROPERTY,
                f"property \"{key}\" has no meaning with catalog.type = '{kind}'",
                key=key,
                hint=f"omit {key}",
            )


def _require_no_login(kind: str, uri: str) -> None:
    """Raises OptionError for an address that contains a login, because the address appears in messages and in the
    identity of a table."""
    parts = urlsplit(uri.removeprefix(_JDBC))
    if "@" in parts.netloc or {"user", "password"} & dict(parse_qsl(parts.query)).keys():
        held = OptionError(
            INVALID_PROPERTY,
            'property "catalog.uri" must not contain a login',
            key="catalog.uri",
            hint="catalog.token = SECRET …, or catalog.credential = SECRET …"
            if kind == "rest"
            else "catalog.jdbc.user = '…', catalog.jdbc.password = SECRET …",
        )
        held.hides_literals = True
        raise held


def table_name(options: Mapping[str, str]) -> str:
    """The table's full name, with its namespace."""
    database = options.get("database.name", "").strip()
    return f"{database}.{options['table.name'].strip()}" if database else options["table.name"].strip()


def place_of(options: Mapping[str, str]) -> str:
    """The identity of the catalog that contains the table."""
    return f"iceberg:{options['catalog.uri'].strip()}"


def load_table(spec: ConnectorSpec, options: Mapping[str, str], *, timeout: float | None = None) -> Table:
    """Loads the table as it is now. Raises TableMissingError or CatalogError.

    ``timeout`` is the maximum wait in seconds for each connection to a REST catalog, and for the next bytes of each
    response. If ``timeout`` is None, the default limits of the catalog's client apply.
    """
    from pyiceberg import exceptions

    try:
        with _limited(spec, options, timeout):
            return open_catalog(spec, options).load_table(table_name(options))
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        raise TableMissingError(f"there is no Iceberg table {table_name(options)}") from error
    except Exception as error:
        if _NO_CATALOG in str(error).lower() and _NOT_THERE.search(str(error)):
            raise TableMissingError(f"there is no Iceberg catalog at {options['catalog.uri']}") from error
        raise CatalogError(told(error, options)) from error


_NO_CATALOG, _NOT_THERE = "iceberg_tables", re.compile("no such table|does not exist")
"""Parts of the error messages with which SQLite and PostgreSQL report that a database lacks the catalog's tables."""


def _limited(
    spec: ConnectorSpec, options: Mapping[str, str], timeout: float | None
) -> AbstractContextManager[None, bool | None]:
    if timeout is None or _kind(spec, options) != "rest":
        return nullcontext()
    from rw_sql.connectors.iceberg.rest import limited

    return limited(timeout)


def open_catalog(spec: ConnectorSpec, options: Mapping[str, str]) -> Catalog:
    """Opens the catalog. The catalog stays open, and tables with the same options share it."""
    properties = _properties(spec, options)
    name = spec.value(options, "catalog.name") or "risingwave"
    return _CATALOGS.of((name, tuple(sorted(properties.items()))))


def _opened(address: tuple[str, tuple[tuple[str, str], ...]]) -> Catalog:
    """Opens the catalog with this name and these properties."""
    from pyiceberg.catalog import load_catalog

    name, properties = address
    given = dict(properties)
    if given["type"] == "rest":
        from rw_sql.connectors.iceberg.rest import PatientRestCatalog

        return PatientRestCatalog(name, **given)
    return load_catalog(name, **given)


_CATALOGS = SharedClients(_opened, most=16)


def _properties(spec: ConnectorSpec, options: Mapping[str, str]) -> dict[str, str]:
    """The catalog's options under the names that pyiceberg gives them."""
    made = {
        option.client: options[option.key]
        for option in spec.options.values()
        if option.client is not None and option.key in options and not option.key.startswith("catalog.jdbc.")
    }
    if "s3.path.style.access" in options:
        is_path = options["s3.path.style.access"].strip().lower() == "true"
        made["s3.force-virtual-addressing"] = "false" if is_path else "true"
    uri = options["catalog.uri"].strip()
    if _kind(spec, options) == "rest":
        return {**made, "type": "rest", "uri": uri}
    # init_catalog_tables is false, because reading the state of a source must not write. The sink creates the tables of
    # a new catalog before its first write.
    return {**made, "type": "sql", "uri": _database(uri.removeprefix(_JDBC), options), "init_catalog_tables": "false"}


def _database(uri: str, options: Mapping[str, str]) -> str:
    """Converts a JDBC URL to SQLAlchemy's form."""
    if uri.startswith("sqlite:"):
        return f"sqlite:///{uri.removeprefix('sqlite:').removeprefix('file:')}"
    user = quote(options.get("catalog.jdbc.user", ""), safe="")
    password = quote(options.get("catalog.jdbc.password", ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    rest = uri.partition("://")[2]
    limits = urlencode({key: value for key, value in _LIMITS.items() if key not in rest})
    return f"postgresql+psycopg://{login}{rest}{'&' if '?' in rest else '?'}{limits}"


def _kind(spec: ConnectorSpec, options: Mapping[str, str]) -> str:
    return (spec.value(options, "catalog.type") or "rest").strip().lower()


def told(error: BaseException, options: Mapping[str, str]) -> str:
    """The first line of an error's text, with the secrets removed."""
    lines = without_secrets(str(error), options, _SECRETS).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def properties_of_files(table: Table) -> dict[str, Any]:
    """The options with which another process can read the table's files: the catalog's options, and the credentials
    that the catalog issued for the table."""
    return {key: value for key, value in table.io.properties.items() if key != "uri"}
