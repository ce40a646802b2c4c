"""Certificates signed by a test authority, made with openssl(1)."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 30


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


def make_authority(directory: Path) -> Certificate:
    """Make a self-signed certificate authority."""
    authority = Certificate(directory / "ca.pem", directory / "ca.key")
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=clustercheckd test authority", "-keyout", str(authority.key), "-out", str(authority.cert),
    )  # fmt: skip
    return authority


def make_certificate(
    directory: Path, name: str, authority: Certificate, address: str
) -> Certificate:
    """Make a certificate for an IP address or a host name, signed by the authority."""
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    kind = "IP" if address.replace(".", "").isdecimal() else "DNS"
    extensions.write_text(f"subjectAltName={kind}:{address}\n")
    _openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
        "-keyout", str(made.key), "-out", str(request),
    )  # fmt: skip
    _openssl(
        "x509", "-req", "-days", "2", "-in", str(request), "-CA", str(authority.cert), "-CAkey", str(authority.key),
        "-CAcreateserial", "-extfile", str(extensions), "-out", str(made.cert),
    )  # fmt: skip
    return made


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=_SECONDS)
