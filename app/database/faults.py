"""What a failure means: an exception in, an `Unobserved` out, in our own words.

Pure: no socket, no clock. Driver and server texts stay out of the words, because they quote credentials.
"""

import os
import re
import socket
import ssl
from dataclasses import dataclass

from pymysql.err import InterfaceError, MySQLError

from app.database.login import Login
from app.database.settings_error import DatabaseSettingsError
from app.node_state import CAUSE_OF_SERVER_ERROR, Cause, Unobserved, one_line

# MySQL and MariaDB number their servers' errors from 1000 on, those of their client libraries from 2000 to 2999.
_FIRST_ERROR_OF_SERVER = 1000
_ERRORS_OF_CLIENT = range(2000, 3000)
_PLUGIN_NAME_BYTES = 64  # what MySQL takes for the name of a plugin

_IN_WORDS = {
    Cause.TOO_MANY_CONNECTIONS: "the server has no connection left for user {user}",
    Cause.ACCESS_DENIED: "the server refused user {user}",
    Cause.HOST_BLOCKED: "the server does not let this host in",
    Cause.OFFLINE: "the server is in offline mode and lets only administrators in",
    Cause.CONNECTION_LOST: "the server closed the connection while {phase}",
    Cause.ERROR: "the server answered with an error while {phase}",
}


class UnfitServerError(Exception):
    """A server that we go no further with. words: what is wrong with it, with room for login, user and phase."""

    cause = Cause.ERROR
    words = ""


class PlainTextError(UnfitServerError):
    """The server offers no TLS where it is required."""

    words = "{login} offers no TLS, which MYSQL_SSL requires"


class TooManyBytesError(UnfitServerError):
    """The server sends more than any answer takes."""

    words = "{login} sent more than any MySQL server does while {phase}"


class RefusedPluginError(UnfitServerError):
    """The server asks for an authentication plugin that is not answered."""

    cause = Cause.ACCESS_DENIED

    def __init__(self, plugin: bytes) -> None:
        super().__init__()
        name = re.sub(rb"\W", b"?", plugin[:_PLUGIN_NAME_BYTES]).decode() or "unknown"
        self.words = (
            f"user {{user}} authenticates with the plugin {name}, which clustercheckd does not speak:"
            " use unix_socket, mysql_native_password or caching_sha2_password for it"
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was under way when something failed.

    login: None where it was not even resolved. phase: what was being done, as in "while connecting".
    """

    login: Login | None
    phase: str
    deadline_seconds: float

    @property
    def user(self) -> str:
        """The account's name."""
        return self.login.username if self.login else "unknown"


def unobserved(fault: BaseException, attempt: Attempt) -> Unobserved:
    """Say in our own words what a failure means."""
    seen = _fault_seen(fault, attempt)
    # Paths and names may hold anything.
    return Unobserved(seen.cause, one_line(seen.detail))


def error_number(fault: BaseException) -> int:
    """Give the server's or the client library's error number; 0 where there is none."""
    number = fault.args[0] if isinstance(fault, MySQLError) and fault.args else 0
    return number if isinstance(number, int) else 0


def is_error_of_server(fault: BaseException) -> bool:
    """Whether this is an answer of the server, on a connection that goes on, not a failure of the connection itself."""
    number = error_number(fault)
    return number >= _FIRST_ERROR_OF_SERVER and number not in _ERRORS_OF_CLIENT


def is_refusal(fault: BaseException, seen: Unobserved) -> bool:
    """Whether asking again at once would change nothing, but cost the server another line in its log."""
    tls = _tls_fault(fault)
    return (
        seen.cause in (Cause.ACCESS_DENIED, Cause.HOST_BLOCKED)
        or isinstance(fault, PlainTextError)
        or isinstance(tls, ssl.SSLCertVerificationError)
        # What the server says of our own certificate.
        or (tls is not None and "ALERT" in (tls.reason or ""))
    )


def _tls_fault(fault: BaseException) -> ssl.SSLError | None:
    # aiomysql wraps what it meets while it reads into a connection that is lost.
    return next((one for one in (fault, fault.__cause__) if isinstance(one, ssl.SSLError)), None)


def _fault_seen(fault: BaseException, attempt: Attempt) -> Unobserved:
    login = attempt.login
    if tls := _tls_fault(fault):
        return Unobserved(Cause.ERROR, f"no TLS connection to {login}: {_tls_words(tls)}")
    match fault:
        case DatabaseSettingsError():
            return Unobserved(Cause.ERROR, str(fault))
        case UnicodeError():
            return Unobserved(Cause.ERROR, f"{login} or user {attempt.user} is no name that can be asked for")
        case UnfitServerError():
            words = fault.words.format(login=login, user=attempt.user, phase=attempt.phase)
            return Unobserved(fault.cause, words)
        case TimeoutError():
            waited = f"within {attempt.deadline_seconds:g} s while {attempt.phase}"
            return Unobserved(Cause.TIMEOUT, f"no answer from {login} {waited}")
        case BrokenPipeError() | ConnectionResetError() | ConnectionAbortedError():
            # The connection was there, and the peer ended it, however early.
            return _driver_fault(fault, attempt)
        case BlockingIOError():
            # The queue of a unix socket is full: the server has accepted nobody for a while. TCP would time out.
            return Unobserved(Cause.TIMEOUT, f"{login} accepts no connection, and its queue is full")
        case OSError():
            # Once connected, the driver makes its own of every OSError.
            return Unobserved(Cause.UNREACHABLE, f"cannot connect to {login}: {os_words(fault)}")
        case RuntimeError() if "cryptography" in str(fault):
            return Unobserved(Cause.ACCESS_DENIED, _cryptography_words(attempt.user))
    return _driver_fault(fault, attempt)


def _driver_fault(fault: BaseException, attempt: Attempt) -> Unobserved:
    number = error_number(fault)
    cause = CAUSE_OF_SERVER_ERROR.get(number)
    if cause is None and number:
        cause = Cause.ERROR
    elif cause is None and isinstance(fault, (OSError, RuntimeError, InterfaceError)):
        # What asyncio, uvloop and aiomysql raise on a transport whose peer is gone.
        cause = Cause.CONNECTION_LOST
    if cause is None:
        return Unobserved(Cause.ERROR, f"{attempt.login} does not speak the MySQL protocol ({attempt.phase})")
    words = _IN_WORDS[cause].format(user=attempt.user, phase=attempt.phase)
    return Unobserved(cause, f"{words} (error {number})" if number else words)


def _cryptography_words(user: str) -> str:
    return (
        f"user {user} authenticates with caching_sha2_password or sha256_password, which over plain TCP needs"
        " the Python package cryptography: install it, or use the socket or TLS"
    )


def os_words(fault: OSError) -> str:
    """Return what the operating system, or a resolver, calls a fault."""
    # Event loops put addresses and their own phrases into strerror; a resolver's numbers mean nothing to os.strerror.
    if isinstance(fault, socket.gaierror) or not fault.errno:
        return fault.strerror or type(fault).__name__
    return os.strerror(fault.errno)


def _tls_words(fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {fault.verify_message}"
    return (fault.reason or type(fault).__name__).lower().replace("_", " ")
