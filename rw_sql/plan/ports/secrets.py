"""Defines the port for the values of secrets. The port's methods accept plain values but never return them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.metastore.records import SecretRecord


class SecretPort(Protocol):
    """The port for the values of secrets."""

    def seal(self, name: str, value: str, *, is_new_key: bool = False) -> str:
        """Encrypts a value for the catalog, and returns the encrypted value. The secret has the backend ``meta``.

        Raises SqlError if this process has no encryption key. Also raises SqlError if the key decrypts none of the
        catalog's secrets, unless ``is_new_key`` is True.
        """
        ...

    def reseal(self, secret: SecretRecord, name: str) -> str:
        """Encrypts the value of a secret again, because the secret is renamed, and returns the encrypted value. The
        secret has the backend ``meta``."""
        ...

    def require_readable(self, secret: SecretRecord) -> None:
        """Raises SqlError if the value of the secret cannot be read from the secret's backend."""
        ...
