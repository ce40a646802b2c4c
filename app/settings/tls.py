"""Resolves the MYSQL_SSL* settings, or the option file's, to the TLS context of a connection.

A file can never weaken the TLS that the settings ask for, and one that names a certificate requires
TLS: docs/reference/settings.md, "Option files".
"""

import ssl
from functools import lru_cache
from typing import Literal

from app.settings.error import SettingsError
from app.settings.files import stamp_of, words_of
from app.settings.option_file import Options

Verify = Literal["identity", "ca", "none"]
"""What to verify: issuer and host name, issuer only, nothing."""

_FILES = ("ssl-ca", "ssl-cert", "ssl-key")


def context_of_file(options: Options) -> ssl.SSLContext | None:
    """Return the context for the options of a file; None for plain text. Raises `SettingsError`."""
    # MySQL's option. The others are MariaDB's.
    mode = (options.get("ssl-mode") or "").lower()
    if mode:
        is_required = mode not in ("disabled", "preferred")
    else:
        verifies = options.get("ssl-verify-server-cert", "0")
        names_files = any(option in options for option in _FILES)
        is_required = names_files or _is_on(options.get("ssl", verifies))
    if not is_required:
        return None
    verify: Verify = "identity"
    if mode == "verify_ca":
        verify = "ca"
    elif mode == "required" or not _is_on(options.get("ssl-verify-server-cert")):
        verify = "none"
    return context_of(verify, *(options.get(option) or None for option in _FILES))


def context_of(verify: Verify, *files: str | None) -> ssl.SSLContext:
    """Return the context. Raises `SettingsError`.

    files: the authorities, and the client's certificate and key; each of these may contain the
    other.
    """
    system = ssl.get_default_verify_paths()
    stamps = map(stamp_of, (*files, system.cafile, system.capath))
    return _loaded(verify, *files, *stamps)


# Load the files again only if one has changed: the system's take 50 ms.
@lru_cache(maxsize=1)
def _loaded(
    verify: Verify, ca: str | None, cert: str | None, key: str | None, *_stamps: object
) -> ssl.SSLContext:
    setting = f"MYSQL_SSL_CA or ssl-ca: {ca}"
    try:
        context = ssl.create_default_context(cafile=ca)
        # The default of Python 3.13 rejects certificates that MySQL's own clients accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = verify == "identity"
        if verify == "none":
            context.verify_mode = ssl.CERT_NONE
        if certificate := cert or key:
            setting = (
                f"MYSQL_SSL_CERT, MYSQL_SSL_KEY, ssl-cert or ssl-key: {cert}, {key}"
            )
            # Without a password, OpenSSL would ask on the terminal for that of an encrypted key.
            context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as fault:
        words = (
            words_of_tls(fault) if fault.reason else "not a usable certificate or key"
        )
        raise SettingsError(f"{setting}: {words}") from None
    except OSError as fault:
        raise SettingsError(f"{setting}: {words_of(fault)}") from None
    return context


def words_of_tls(fault: ssl.SSLError) -> str:
    """Return OpenSSL's word for a fault."""
    return (fault.reason or type(fault).__name__).lower().replace("_", " ")


def _is_on(value: str | None) -> bool:
    """Return whether an option is on: without a value, it is."""
    return value is None or value.lower() not in ("0", "off", "false", "disabled")
