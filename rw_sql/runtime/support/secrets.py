"""Encrypts and reads the values of secrets. A value is encrypted in the catalog (backend ``meta``), or is read from the
environment, a file or a vault. Values of secrets never appear in logs or errors.

Backend ``meta`` encrypts with AES-256-GCM (NIST SP 800-38D) and a random 96-bit nonce per value. The secret's name is
the associated data. Therefore, an encrypted value that is copied to another secret cannot be decrypted there. The key
is 32 bytes in base64, from ``RW_SQL_SECRET_KEY`` or the file named by ``RW_SQL_SECRET_KEY_FILE``; the key is never
stored with the data.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.redirects import keep_at_origin
from rw_sql.connectors.support.messages import HIDDEN
from rw_sql.errors import SECRET_KEY_MISSING, SECRET_UNREADABLE, SqlError
from rw_sql.masking import without_logins
from rw_sql.model.definitions import secret_options
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.metastore.records import SecretRecord

KEY_VARIABLE = "RW_SQL_SECRET_KEY"
KEY_FILE_VARIABLE = "RW_SQL_SECRET_KEY_FILE"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_FORM = "aes256gcm"
_VAULT_TIMEOUT_SECONDS = 10
_WHICH_KEY = f"set {KEY_VARIABLE} to the key that the process that runs the jobs has"


def seal(name: str, value: str) -> str:
    """Encrypts the value of the secret ``name``. The result has the form ``aes256gcm:<base64 of nonce and
    ciphertext>``. Raises SqlError SECRET_KEY_MISSING."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    sealed = AESGCM(_key("encrypt", _how_to_make_a_key())).encrypt(nonce, value.encode(), name.encode())
    return f"{_FORM}:{base64.b64encode(nonce + sealed).decode()}"


def require_key_of(secrets: Sequence[SecretRecord], name: str) -> None:
    """Checks that the key of this process is the key with which the secrets of backend ``meta`` were encrypted: it must
    decrypt at least one of ``secrets``. Does nothing if there is no secret of this backend yet.

    With another key, this process would encrypt a value that the process that runs the jobs cannot decrypt. ``name`` is
    the name of the secret whose value will be encrypted. Raises SqlError SECRET_KEY_MISSING if this process has no key,
    or if its key decrypts none of the secrets.
    """
    sealed = [secret for secret in secrets if secret.backend == "meta"]
    if not sealed:
        return
    key = _key("encrypt", _WHICH_KEY)
    if any(_opened(secret, key) is not None for secret in sealed):
        return
    lost = name if any(secret.name == name for secret in sealed) else sealed[0].name
    raise SqlError(
        SECRET_KEY_MISSING,
        f"the key of this process is not the key of this warehouse: it does not decrypt {_named(sealed)}",
        hint=f"{_WHICH_KEY}; if that key is lost, ALTER SECRET {sql_name(lost)} WITH (new_key = true) AS '…'",
    )


def _named(secrets: Sequence[SecretRecord]) -> str:
    if len(secrets) == 1:
        return f'secret "{secrets[0].name}"'
    return f"any of its {len(secrets)} secrets of backend meta"


def read_secret(secret: SecretRecord) -> str:
    """Reads a secret's value from its backend. Raises SqlError SECRET_UNREADABLE, or SECRET_KEY_MISSING if a secret of
    backend ``meta`` cannot be decrypted for lack of a valid key."""
    options = secret_options(secret.definition)
    match secret.backend:
        case "meta":
            return _unseal(secret)
        case "env":
            return _from_environment(secret.name, options["name"])
        case "file":
            return _from_file(secret.name, options["path"])
        case "hashicorp_vault":
            return _from_vault(secret.name, options)
        case other:
            raise _unreadable(secret.name, f"its backend {other} is unknown")


def _unreadable(name: str, why: str, hint: str | None = None) -> SqlError:
    return SqlError(SECRET_UNREADABLE, f'secret "{name}" cannot be read: {why}', hint=hint)


def _key(use: str, hint: str) -> bytes:
    """The key of this process for secrets of backend ``meta``. ``use`` (``encrypt`` or ``decrypt``) and ``hint`` are
    texts for the error that is raised if there is no valid key."""
    text = os.environ.get(KEY_VARIABLE, "").strip()
    path = os.environ.get(KEY_FILE_VARIABLE)
    if not text and path:
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8-sig").strip()
        except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: a ~ without a home folder.
            raise SqlError(
                SECRET_KEY_MISSING,
                f"cannot read the key file {path!r} of {KEY_FILE_VARIABLE}: {_file_fault(error)}",
                hint=f"export {KEY_FILE_VARIABLE}=PATH, of a file that this process can read",
            ) from error
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise SqlError(SECRET_KEY_MISSING, "the key for secrets is not base64", hint=hint) from error
    if len(key) != _KEY_BYTES:
        what = f"the key for secrets has {len(key)} bytes instead of {_KEY_BYTES}"
        if not key:
            what = f"there is no key to {use} secrets with: neither {KEY_VARIABLE} nor {KEY_FILE_VARIABLE} contains one"
        raise SqlError(SECRET_KEY_MISSING, what, hint=hint)
    return key


def _how_to_make_a_key() -> str:
    return f"export {KEY_VARIABLE}=$(openssl rand -base64 {_KEY_BYTES}), and store it separately from the data"


def _unseal(secret: SecretRecord) -> str:
    if not (secret.sealed or "").startswith(f"{_FORM}:"):
        raise _unreadable(secret.name, "it was encrypted in an unknown format")
    value = _opened(secret, _key("decrypt", f"set {KEY_VARIABLE} to the key that the secrets were encrypted with"))
    if value is None:
        hint = f"set {KEY_VARIABLE} to that key; if it is lost, ALTER SECRET {sql_name(secret.name)} AS '…'"
        raise _unreadable(secret.name, "it was encrypted with another key", hint)
    return value


def _opened(secret: SecretRecord, key: bytes) -> str | None:
    """Returns a secret's value; None if the value was not encrypted with this key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    form, _, text = (secret.sealed or "").partition(":")
    if form != _FORM:
        return None
    try:
        raw = base64.b64decode(text)
        return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], secret.name.encode()).decode()
    except (InvalidTag, ValueError):  # ValueError: the stored text is damaged
        return None


def _without_line_end(text: str) -> str:
    """Returns a value without the line breaks at its end. Editors and ``echo`` add line breaks at the end of files and
    variables, but no password ends with a line break."""
    return text.rstrip("\r\n")


def _from_environment(name: str, variable: str) -> str:
    try:
        return _without_line_end(os.environ[variable])
    except KeyError as error:
        raise _unreadable(name, f"environment variable {variable} is not set", f"export {variable}=…") from error


def _from_file(name: str, path: str) -> str:
    try:
        return _without_line_end(Path(path).expanduser().read_text(encoding="utf-8-sig"))
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise _unreadable(name, f"file {path!r}: {_file_fault(error)}") from error


def _file_fault(error: OSError | RuntimeError | UnicodeDecodeError) -> str:
    """The reason why a file cannot be read, without any of its content."""
    if isinstance(error, RuntimeError):
        return "the user has no home folder"
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"


def _credential(variable: str) -> str | None:
    """Returns a credential for the vault from the environment, without leading and trailing white space. None if the
    variable is not set."""
    value = os.environ.get(variable)
    return None if value is None else value.strip()


def _from_vault(name: str, options: Mapping[str, str]) -> str:
    """Reads the field that the option ``field`` names, from the newest version of a secret in HashiCorp Vault (KV
    version 2). The credentials for the vault come from the environment."""
    import hvac
    import requests

    # A warehouse of an earlier version may contain an address with a login.
    address = without_logins(options["addr"], HIDDEN)
    client: Any = hvac.Client(
        url=options["addr"],
        token=_credential("VAULT_TOKEN"),
        namespace=options.get("namespace"),
        timeout=_VAULT_TIMEOUT_SECONDS,
    )
    # With a session of the caller, hvac would ignore VAULT_CACERT and VAULT_CAPATH.
    keep_at_origin(client.adapter.session)
    try:
        if options.get("auth_method", "token").lower() == "approle":
            client.auth.approle.login(
                role_id=_credential("VAULT_ROLE_ID") or "", secret_id=_credential("VAULT_SECRET_ID") or ""
            )
        answer = client.secrets.kv.v2.read_secret_version(
            path=options["path"], mount_point=options.get("mount", "secret"), raise_on_deleted_version=True
        )
        return _without_line_end(str(answer["data"]["data"][options["field"]]))
    except hvac.exceptions.VaultError as error:
        raise _unreadable(
            name, f"the vault reports {type(error).__name__}", "check path, mount and VAULT_TOKEN"
        ) from error
    except (requests.ConnectionError, requests.Timeout) as error:
        raise _unreadable(name, f"the vault at {address} does not answer") from error
    except (requests.exceptions.InvalidHeader, UnicodeError):  # The error's message contains the token.
        why = "VAULT_TOKEN contains characters that no token contains"
        raise _unreadable(name, why, "export VAULT_TOKEN=…") from None
    except requests.RequestException as error:
        raise _unreadable(name, without_logins(f"the vault at {address}: {error}", HIDDEN)) from error
    except KeyError as error:
        raise _unreadable(name, f'the vault\'s secret has no field "{options["field"]}"') from error
