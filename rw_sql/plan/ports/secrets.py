"""The port for the values of secrets. The port accepts such values but never returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.metastore.records import SecretRecord


class SecretPort(Protocol):
    """The values of secrets."""

    def seal(self, name: str, value: str, *, is_new_key: bool = False) -> str:
        """The value of a secret of backend ``meta``, encrypted for the catalog.

        Raises SqlError if there is no key, or, without ``is_new_key``, if the key of this process decrypts none of the
        catalog's secrets.
        """
        ...

    def reseal(self, secret: SecretRecord, name: str) -> str:
        """The value of a secret of backend ``meta``, encrypted for another name of the secret."""
        ...

    def require_readable(self, secret: SecretRecord) -> None:
        """Raises SqlError if the value cannot be read from its backend."""
        ...
