"""Certificates and keys, and the errors for invalid ones."""

import ssl
from pathlib import Path

import pytest

from headwise.errors import ConfigError
from headwise.serving.protocol import tls_context
from tests.conftest import Headwise
from tests.servers import CERTIFICATE, PRIVATE_KEY, TLS


def test_a_certificate_and_its_key_make_a_context() -> None:
    context = tls_context(CERTIFICATE, PRIVATE_KEY)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("certificate", "key", "complaint"),
    [
        (TLS / "nothing.pem", PRIVATE_KEY, "nothing.pem: cannot be read: No such file"),
        (CERTIFICATE, TLS / "nothing.pem", "nothing.pem: cannot be read: No such file"),
        (CERTIFICATE, TLS, "tls: cannot be read: Is a directory"),
        (
            CERTIFICATE,
            TLS / "other_key.pem",
            "other_key.pem: this is not the key of the certificate .*/certificate.pem$",
        ),
        (
            CERTIFICATE,
            TLS / "encrypted_key.pem",
            "encrypted_key.pem: the key is encrypted: decrypt it with `openssl pkey -in ",
        ),
        (PRIVATE_KEY, PRIVATE_KEY, "not a certificate and its key in PEM"),
        (CERTIFICATE, CERTIFICATE, "not a certificate and its key in PEM"),
        (TLS / "README.md", PRIVATE_KEY, "not a certificate and its key in PEM"),
    ],
)
def test_invalid_files_are_named(certificate: Path, key: Path, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        tls_context(certificate, key)


def test_the_command_checks_the_files_before_it_loads_a_model(headwise: Headwise) -> None:
    serve = ("serve", "no_such_run", "--port", "0", "--tls-cert", str(CERTIFICATE))
    code, _, errors = headwise(*serve)
    assert (code, "--tls-cert and --tls-key need each other" in errors) == (2, True)
    code, _, errors = headwise(*serve, "--tls-key", str(TLS / "encrypted_key.pem"))
    assert (code, errors.count("\n")) == (2, 1)
    assert "the key is encrypted" in errors
