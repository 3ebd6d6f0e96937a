"""Reads the newest schema from a registry, or a schema file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.schemas.client import RegistryClient, RegistryError
from rw_sql.connectors.schemas.options import client_options
from rw_sql.errors import FILE_UNREADABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.schemas.client import RegisteredSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaLook:
    """A subject's newest schema.

    If there is no such subject, the schema is None and ``present`` lists the existing subjects.

    If the registry cannot be read, ``error`` is the reason. ``is_unknown`` is true if the registry was not contacted;
    ``rw-sql check``, for example, does not contact it.
    """

    schema: RegisteredSchema | None = None
    present: tuple[str, ...] = ()
    error: str | None = None
    is_unknown: bool = False


def look_at_subject(options: Mapping[str, str], subject: str) -> SchemaLook:
    """Returns a subject's newest schema. ``options`` contain the values of secrets. Errors of the registry are
    returned, never raised."""
    client = RegistryClient(client_options(options))
    try:
        schema = client.latest(subject)
        return SchemaLook(schema=schema, present=() if schema is not None else client.subjects())
    except RegistryError as error:
        return SchemaLook(error=str(error))


def read_schema_file(location: str) -> bytes:
    """Reads the schema file at ``location``, a URL or path. Raises SqlError FILE_UNREADABLE."""
    import fsspec

    try:
        with fsspec.open(location, "rb", use_listings_cache=False) as file:
            return bytes(file.read())
    except (OSError, ValueError, ImportError) as error:
        raise SqlError(
            FILE_UNREADABLE,
            f"{location} cannot be read: {error}",
            hint="schema.location = 'file:///…', a file that this process can read",
        ) from error


def registry_error(options: Mapping[str, str], *, is_login_enough: bool = False) -> str | None:
    """Returns the reason why a registry cannot be read; None if the registry responds. ``options`` contain the values
    of secrets. If ``is_login_enough`` is true, the user need not have the right to list all subjects."""
    try:
        RegistryClient(client_options(options)).subjects()
    except RegistryError as error:
        return None if is_login_enough and error.is_forbidden else str(error)
    return None
