"""Defines the port for the values of secrets. The port accepts such values but never returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.metastore.records import SecretRecord


class SecretPort(Protocol):
    """The values of secrets."""

    def seal(self, name: str, value: str, *, is_new_key: bool = False) -> str:
        """Encrypts the value of a secret of backend ``meta`` for the catalog, and returns the encrypted value.

        Raises SqlError if this process has no key. Unless ``is_new_key`` is True, also raises SqlError if the key
        decrypts none of the catalog's secrets.
        """
        ...

    def reseal(self, secret: SecretRecord, name: str) -> str:
        """Encrypts the value of a secret of backend ``meta`` for a new name of the secret, and returns the encrypted
        value."""
        ...

    def require_readable(self, secret: SecretRecord) -> None:
        """Raises SqlError if the value cannot be read from its backend."""
        ...
