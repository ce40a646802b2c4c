"""Resolves the MYSQL_SSL* settings to the TLS context of a connection."""

import ssl
from functools import lru_cache

from app.settings.error import SettingsError
from app.settings.files import stamp_of, words_of

VERIFY = ("identity", "ca", "none")
"""What to verify: issuer and host name, issuer only, nothing."""


def context_of(verify: str, *files: str | None) -> ssl.SSLContext:
    """Return the context. Raises `SettingsError`.

    files: the authorities, and the client's certificate and key; each of these may contain the
    other.
    """
    return _loaded(verify, *files, *map(stamp_of, files))


# Load the files again only if one has changed: the system's take 50 ms.
@lru_cache(maxsize=1)
def _loaded(
    verify: str, ca: str | None, cert: str | None, key: str | None, *_stamps: object
) -> ssl.SSLContext:
    setting = f"MYSQL_SSL_CA: {ca}"
    try:
        context = ssl.create_default_context(cafile=ca)
        # The default of Python 3.13 rejects certificates that MySQL's own clients accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = verify == "identity"
        if verify == "none":
            context.verify_mode = ssl.CERT_NONE
        if certificate := cert or key:
            setting = f"MYSQL_SSL_CERT, MYSQL_SSL_KEY: {cert}, {key}"
            # Without a password, OpenSSL would ask on the terminal for that of an encrypted key.
            context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as fault:
        raise SettingsError(f"{setting}: {words_of_tls(fault)}") from None
    except OSError as fault:
        raise SettingsError(f"{setting}: {words_of(fault)}") from None
    return context


def words_of_tls(fault: ssl.SSLError) -> str:
    """Return OpenSSL's word for a fault."""
    return (fault.reason or type(fault).__name__).lower().replace("_", " ")
