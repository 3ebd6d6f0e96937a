"""Certificates for a broker and its clients, signed by a private authority."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A key with its certificate."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, *, password: str | None = None, is_traditional: bool = False) -> str:
        """The key as PEM: PKCS #8 unless ``is_traditional``, encrypted if a password is given."""
        form = serialization.PrivateFormat
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        return self.key.private_bytes(
            serialization.Encoding.PEM, form.TraditionalOpenSSL if is_traditional else form.PKCS8, lock
        ).decode()


def make_authority() -> Signed:
    """A self-signed authority."""
    key = rsa.generate_private_key(65537, 2048)
    built = _builder("authority", "authority", key).add_extension(x509.BasicConstraints(True, None), True)
    return Signed(key=key, certificate=built.sign(key, hashes.SHA256()))


def issue(authority: Signed, name: str) -> Signed:
    """A certificate for this machine."""
    key = rsa.generate_private_key(65537, 2048)
    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    built = _builder(name, "authority", key).add_extension(x509.SubjectAlternativeName(here), False)
    return Signed(key=key, certificate=built.sign(authority.key, hashes.SHA256()))


def _builder(subject: str, issuer: str, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
    )
