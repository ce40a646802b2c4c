"""Certificates signed by a test authority, made with openssl(1)."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_SECONDS = 30


class Certificate(NamedTuple):
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


def make_authority(directory: Path) -> Certificate:
    """Make a self-signed certificate authority."""
    return _made(directory, "ca", "-subj", "/CN=clustercheckd test authority")


def make_certificate(
    directory: Path, name: str, authority: Certificate, address: str
) -> Certificate:
    """Make a certificate for an IP address or a host name, signed by the authority."""
    kind = "IP" if address.replace(".", "").isdecimal() else "DNS"
    signed_by = ("-CA", str(authority.cert), "-CAkey", str(authority.key))
    extensions = (f"subjectAltName={kind}:{address}", "basicConstraints=CA:FALSE")
    added = [word for extension in extensions for word in ("-addext", extension)]
    return _made(directory, name, "-subj", f"/CN={name}", *signed_by, *added)


def _made(directory: Path, name: str, *arguments: str) -> Certificate:
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    )
    files = ("-keyout", str(made.key), "-out", str(made.cert))
    subprocess.run(
        [*command.split(), *arguments, *files],
        check=True,
        capture_output=True,
        timeout=_SECONDS,
    )
    return made
