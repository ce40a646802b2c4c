"""Translates the exception of a failed poll into a `PollFailure`, in clustercheckd's own words.

Pure: no socket, no clock. The words never contain driver or server text, because that may quote credentials.
"""

import os
import re
import socket
import ssl
from dataclasses import dataclass

from pymysql.err import InterfaceError, MySQLError

from app.database.login import Login
from app.node_state import REASON_OF_SERVER_ERROR, PollFailure, one_line
from app.reason import Reason
from app.settings_error import SettingsError

# MySQL and MariaDB number the server's errors from 1000, except 2000 to 2999: those are the client library's.
_FIRST_ERROR_OF_SERVER = 1000
_ERRORS_OF_CLIENT = range(2000, 3000)
_PLUGIN_NAME_BYTES = 64  # the longest plugin name in MySQL

LOOKING_UP = "looking up the host's name"
"""The phase of a login that does not concern the server."""

_IN_WORDS = {
    Reason.REJECTS_LOGINS: "the server takes no logins",
    Reason.TOO_MANY_CONNECTIONS: "the server has no connection left for user {user}",
    Reason.ACCESS_DENIED: "the server refused user {user}",
    Reason.HOST_BLOCKED: "the server does not accept connections from this host",
    Reason.OFFLINE: "the server is in offline mode and accepts only administrators",
    Reason.CONNECTION_LOST: "the server closed the connection while {phase}",
    Reason.ERROR: "the server answered with an error while {phase}",
}


class UnfitServerError(Exception):
    """A server that clustercheckd refuses to use.

    words: what is wrong with it, a format string for login, user and phase.
    """

    reason = Reason.ERROR
    words = ""


class PlainTextError(UnfitServerError):
    """TLS is required and the server does not offer it."""

    words = "{login} offers no TLS, but MYSQL_SSL* or the option file requires it"


class TooManyBytesError(UnfitServerError):
    """The server sent more than any answer needs."""

    words = "{login} sent more than any MySQL server does while {phase}"


class UnaskedBytesError(UnfitServerError):
    """The server sent more than the statements' answers: the next poll would take the rest for its own answers."""

    words = "{login} sent an answer to no statement while {phase}"


class RefusedPluginError(UnfitServerError):
    """The server requested an authentication plugin that clustercheckd does not support."""

    reason = Reason.ACCESS_DENIED

    def __init__(self, plugin: bytes) -> None:
        super().__init__()
        name = re.sub(rb"\W", b"?", plugin[:_PLUGIN_NAME_BYTES]).decode() or "unknown"
        self.words = (
            f"user {{user}} authenticates with the plugin {name}, which clustercheckd does not support:"
            " change it to unix_socket, mysql_native_password or caching_sha2_password"
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """The poll that failed.

    login: None if it could not be resolved. phase: the step that failed, such as "connecting".
    """

    login: Login | None
    phase: str
    deadline_seconds: float

    @property
    def user(self) -> str:
        """The account's name."""
        return self.login.username if self.login else "unknown"


def poll_failure(fault: BaseException, attempt: Attempt) -> PollFailure:
    """Return the reason of a failure, with a description in clustercheckd's own words."""
    seen = _fault_seen(fault, attempt)
    # Paths and names may contain any byte.
    return PollFailure(seen.reason, one_line(seen.detail))


def error_number(fault: BaseException) -> int:
    """Return the error number of the server or the client library; 0 if the fault has none."""
    number = fault.args[0] if isinstance(fault, MySQLError) and fault.args else 0
    return number if isinstance(number, int) else 0


def is_error_of_server(fault: BaseException) -> bool:
    """Return whether the server answered with an error, so that the connection itself still works."""
    number = error_number(fault)
    return number >= _FIRST_ERROR_OF_SERVER and number not in _ERRORS_OF_CLIENT


def is_refusal(fault: BaseException, seen: PollFailure) -> bool:
    """Return whether an immediate retry would fail too, and only add a line to the server's log."""
    tls = _tls_fault(fault)
    return (
        seen.reason in (Reason.ACCESS_DENIED, Reason.HOST_BLOCKED)
        or isinstance(fault, PlainTextError)
        or isinstance(tls, ssl.SSLCertVerificationError)
        # A TLS alert: the server does not accept our certificate.
        or (tls is not None and "ALERT" in (tls.reason or ""))
    )


def is_rejection(fault: BaseException, failure: PollFailure, phase: str) -> bool:
    """Return whether a login failed because the server takes none, so that clients cannot log in either.

    It may have no thread or no memory left, have a broken init_connect, close the connection in the handshake, refuse
    connections, or not answer.
    """
    return (
        failure.reason in (Reason.REJECTS_LOGINS, Reason.CONNECTION_LOST)
        or (failure.reason is Reason.TIMEOUT and phase != LOOKING_UP)
        or isinstance(fault, ConnectionRefusedError)
    )


def _tls_fault(fault: BaseException) -> ssl.SSLError | None:
    # aiomysql wraps a fault that occurs while it reads in an error of its own.
    return next((one for one in (fault, fault.__cause__) if isinstance(one, ssl.SSLError)), None)


def _fault_seen(fault: BaseException, attempt: Attempt) -> PollFailure:
    login = attempt.login
    if tls := _tls_fault(fault):
        return PollFailure(Reason.ERROR, f"no TLS connection to {login}: {_tls_words(tls)}")
    match fault:
        case SettingsError():
            return PollFailure(Reason.ERROR, str(fault))
        case UnicodeError():
            names = f"the host name in {login} or the user name {attempt.user}"
            return PollFailure(Reason.ERROR, f"{names} is not valid: check MYSQL_HOST and MYSQL_USERNAME")
        case UnfitServerError():
            words = fault.words.format(login=login, user=attempt.user, phase=attempt.phase)
            return PollFailure(fault.reason, words)
        case TimeoutError():
            waited = f"within {attempt.deadline_seconds:g} s while {attempt.phase}"
            return PollFailure(Reason.TIMEOUT, f"no answer from {login} {waited}")
        case BrokenPipeError() | ConnectionResetError() | ConnectionAbortedError():
            # The peer accepted the connection and closed it.
            return _driver_fault(fault, attempt)
        case OSError():
            # Only a failed connect comes here: later, the driver wraps every OSError in an error of its own.
            return PollFailure(Reason.UNREACHABLE, f"cannot connect to {login}: {os_words(fault)}")
        case RuntimeError() if "cryptography" in str(fault):
            return PollFailure(Reason.ACCESS_DENIED, _cryptography_words(attempt.user))
    return _driver_fault(fault, attempt)


def _driver_fault(fault: BaseException, attempt: Attempt) -> PollFailure:
    number = error_number(fault)
    reason = REASON_OF_SERVER_ERROR.get(number)
    if reason is None and number:
        reason = Reason.ERROR
    elif reason is None and isinstance(fault, (OSError, RuntimeError, InterfaceError)):
        # asyncio, uvloop and aiomysql raise these on a transport that the peer has closed.
        reason = Reason.CONNECTION_LOST
    if reason is None:
        return PollFailure(Reason.ERROR, f"{attempt.login} sent an answer that is not MySQL while {attempt.phase}")
    words = _IN_WORDS[reason].format(user=attempt.user, phase=attempt.phase)
    return PollFailure(reason, f"{words} (error {number})" if number else words)


def _cryptography_words(user: str) -> str:
    return (
        f"user {user} authenticates with caching_sha2_password or sha256_password, which over plain TCP needs"
        " the Python package cryptography: install it, or use the socket or TLS"
    )


def os_words(fault: OSError) -> str:
    """Return the operating system's, or the resolver's, description of a fault."""
    # Event loops add addresses and phrases to strerror, so use os.strerror, which does not know a resolver's numbers.
    if isinstance(fault, socket.gaierror) or not fault.errno:
        return fault.strerror or type(fault).__name__
    return os.strerror(fault.errno)


def _tls_words(fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {fault.verify_message}"
    return (fault.reason or type(fault).__name__).lower().replace("_", " ")
