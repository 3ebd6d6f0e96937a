"""Reads a subject's newest schema from a registry, or reads a schema file."""

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

    If there is no such subject, ``schema`` is None, and ``present`` contains the existing subjects.

    If the registry cannot be read, ``error`` is the reason. ``is_unknown`` is true if no request was sent to the
    registry. For example, ``rw-sql check`` sends none.
    """

    schema: RegisteredSchema | None = None
    present: tuple[str, ...] = ()
    error: str | None = None
    is_unknown: bool = False


def look_at_subject(options: Mapping[str, str], subject: str) -> SchemaLook:
    """Returns a subject's newest schema. In ``options``, the values of secrets are already filled in. A
    RegistryError is returned in ``error``, never raised."""
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
    """Returns the reason why a registry cannot be read; None if the registry responds. In ``options``, the values of
    secrets are already filled in. If ``is_login_enough`` is true, the result is also None if the registry accepts
    the login but does not permit the user to list all subjects."""
    try:
        RegistryClient(client_options(options)).subjects()
    except RegistryError as error:
        return None if is_login_enough and error.is_forbidden else str(error)
    return None
