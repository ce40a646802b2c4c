"""Resolves the MYSQL_SSL* settings, or the option file's, to the TLS context of a connection.

If any MYSQL_SSL* setting is set, the option file's TLS options are ignored. A file can therefore
never weaken the TLS that the settings ask for.
"""

import os
import ssl
from dataclasses import dataclass
from typing import Self

from app.database.option_file import OptionFile
from app.settings.error import SettingsError

VERIFY_IDENTITY, VERIFY_CA, VERIFY_NOTHING = "identity", "ca", "none"
"""What to verify of the server's certificate: issuer and host name, issuer only, nothing."""

_FILES = ("ssl-ca", "ssl-cert", "ssl-key")
_UNUSABLE = "not a usable certificate or key"


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings.

    names: how errors name ca, cert and key, which depends on where they were set.

    Raises `SettingsError` for a key without a certificate, which proves nothing to the server.
    """

    required: bool
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: str = VERIFY_IDENTITY
    names: tuple[str, ...] = ("MYSQL_SSL_CA", "MYSQL_SSL_CERT", "MYSQL_SSL_KEY")

    def __post_init__(self) -> None:
        """Check key and certificate."""
        _, cert, key = self.names
        if self.key and not self.cert:
            raise SettingsError(
                f"{key} is set without {cert.rpartition(' ')[2]}: set both or neither"
            )

    @classmethod
    def of_file(cls, options: OptionFile) -> Self:
        """Return the TLS options of a file.

        Raises `SettingsError` for an option without its value.
        """
        ca, cert, key = (options.value(option) or None for option in _FILES)
        # ssl-mode is MySQL's option. The others are MariaDB's.
        mode = (options.values.get("ssl-mode") or "").lower()
        names = tuple(map(options.named, _FILES))
        return cls(_is_required(mode, options), ca, cert, key, _verification(mode, options), names)

    def context(self) -> ssl.SSLContext | None:
        """Return the context for a TCP connection; None if TLS is not required.

        Raises `SettingsError` if a file cannot be used.
        """
        if not self.required:
            return None
        changed_at = [
            _changed_at(name, path)
            for name, path in zip(self.names, (self.ca, self.cert, self.key), strict=True)
            if path
        ]
        # Load the files again only if one has changed: loading takes milliseconds.
        loaded = _loaded.get(self)
        if loaded is None or loaded[0] != changed_at:
            _loaded.clear()
            _loaded[self] = loaded = changed_at, _context(self)
        return loaded[1]


_loaded: dict[Tls, tuple[list[int], ssl.SSLContext]] = {}
"""The latest context, and when its files had changed."""


def _context(tls: Tls) -> ssl.SSLContext:
    ca, cert, key = tls.names
    setting = f"{ca}: {tls.ca}"
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        # Python 3.13 enables this flag by default. It rejects certificates that MySQL's own clients
        # accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = tls.verify == VERIFY_IDENTITY
        if tls.verify == VERIFY_NOTHING:
            context.verify_mode = ssl.CERT_NONE
        if tls.cert:
            setting = f"{cert}: {tls.cert}" + (f" with {key}: {tls.key}" if tls.key else "")
            # Without this password, OpenSSL would ask on the terminal for that of an encrypted key.
            # Now it is an error.
            context.load_cert_chain(tls.cert, tls.key, password="")
    except (OSError, ValueError) as fault:
        words = fault.strerror if isinstance(fault, OSError) else None
        if isinstance(fault, ssl.SSLError):
            words = (fault.reason or _UNUSABLE).lower().replace("_", " ")
        raise SettingsError(f"{setting}: {words or _UNUSABLE}") from None
    return context


def _changed_at(name: str, path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError as fault:
        raise SettingsError(f"{name}: {path}: {fault.strerror}") from None


def _is_required(mode: str, options: OptionFile) -> bool:
    if mode:
        return mode not in ("disabled", "preferred")
    # The last one in the file decides.
    required = not _is_off(options.values.get("ssl-verify-server-cert", "0"))
    for name, value in options.values.items():
        if name == "ssl":
            required = not _is_off(value)
        elif name in _FILES:
            required = True
    return required


def _verification(mode: str, options: OptionFile) -> str:
    if mode == "verify_ca":
        return VERIFY_CA
    if mode == "required" or _is_off(options.values.get("ssl-verify-server-cert")):
        return VERIFY_NOTHING
    return VERIFY_IDENTITY


def _is_off(value: str | None) -> bool:
    """Return whether a boolean option is off. Without a value it is on."""
    return (value or "1").lower() in ("0", "off", "false", "disabled")
