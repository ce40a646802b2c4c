"""Translates the exception of a failed poll into a `PollFailure`. Pure.

The words never contain driver or server text, because that may quote credentials.
"""

import os
import re
import socket
import ssl

from pymysql.err import InterfaceError, MySQLError

from app.database.logins import Outcome
from app.settings.files import SettingsError
from app.settings.target import Target
from app.settings.tls import words_of_tls
from app.text import one_line
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason

_PLUGIN_NAME_BYTES = 64  # the longest plugin name in MySQL

LOOKING_UP = "looking up the host's name"
"""The phase of a login that does not concern the server."""

_REASONS = {
    1040: Reason.TOO_MANY_CONNECTIONS,  # ER_CON_COUNT_ERROR
    1203: Reason.TOO_MANY_CONNECTIONS,  # ER_TOO_MANY_USER_CONNECTIONS
    1226: Reason.TOO_MANY_CONNECTIONS,  # ER_USER_LIMIT_REACHED
    1045: Reason.ACCESS_DENIED,  # ER_ACCESS_DENIED_ERROR
    1698: Reason.ACCESS_DENIED,  # ER_ACCESS_DENIED_NO_PASSWORD_ERROR
    1251: Reason.ACCESS_DENIED,  # ER_NOT_SUPPORTED_AUTH_MODE
    1227: Reason.ACCESS_DENIED,  # no privilege for admin_port
    1820: Reason.ACCESS_DENIED,  # ER_MUST_CHANGE_PASSWORD
    1862: Reason.ACCESS_DENIED,  # ER_MUST_CHANGE_PASSWORD_LOGIN
    3118: Reason.ACCESS_DENIED,  # a locked account of MySQL
    4150: Reason.ACCESS_DENIED,  # ER_USER_IS_BLOCKED, by MariaDB's max_password_errors
    4151: Reason.ACCESS_DENIED,  # a locked account of MariaDB
    1129: Reason.HOST_BLOCKED,  # ER_HOST_IS_BLOCKED
    1130: Reason.HOST_BLOCKED,  # ER_HOST_NOT_PRIVILEGED
    3032: Reason.OFFLINE,  # ER_SERVER_OFFLINE_MODE
    1037: Reason.REJECTS_LOGINS,  # ER_OUTOFMEMORY
    1041: Reason.REJECTS_LOGINS,  # ER_OUT_OF_RESOURCES
    1135: Reason.REJECTS_LOGINS,  # ER_CANT_CREATE_THREAD
    1184: Reason.REJECTS_LOGINS,  # ER_NEW_ABORTING_CONNECTION: init_connect failed
    1053: Reason.CONNECTION_LOST,  # ER_SERVER_SHUTDOWN
    2006: Reason.CONNECTION_LOST,  # CR_SERVER_GONE_ERROR
    2013: Reason.CONNECTION_LOST,  # CR_SERVER_LOST
}
"""See the MySQL and MariaDB reference manuals."""

_IN_WORDS: dict[Reason | int, str] = {
    1129: "the server has blocked this host, after too many broken connections",
    1130: "no account of the server is for this host",
    Reason.REJECTS_LOGINS: "the server takes no logins",
    Reason.TOO_MANY_CONNECTIONS: "no connection is left for user {user}",
    Reason.ACCESS_DENIED: "the server refused user {user}",
    Reason.OFFLINE: "the server is in offline mode and accepts only administrators",
    Reason.CONNECTION_LOST: "the server closed the connection while {phase}",
    Reason.ERROR: "the server answered with an error while {phase}",
}


_REJECTIONS = (Reason.REJECTS_LOGINS, Reason.CONNECTION_LOST, Reason.TIMEOUT)
"""Clients cannot log in either."""

_REFUSALS = (Reason.ACCESS_DENIED, Reason.HOST_BLOCKED)
"""An immediate retry would fail too, and only add a line to the server's log."""


class UnfitServerError(Exception):
    """A server that clustercheckd refuses to use.

    words: what is wrong with it, a format string for target, user and phase.
    """

    reason = Reason.ERROR
    words = ""


class PlainTextError(UnfitServerError):
    """TLS is required and the server does not offer it."""

    words = "{target} offers no TLS, but MYSQL_SSL* or the option file requires it"


class UnaskedBytesError(UnfitServerError):
    """The server sent more than any answer needs, or more than the statements' answers.

    The next poll would take the rest for its own answers.
    """

    words = "{target} sent more than it was asked for while {phase}"


class RefusedPluginError(UnfitServerError):
    """The server requested an authentication plugin that clustercheckd does not support."""

    reason = Reason.ACCESS_DENIED

    def __init__(self, plugin: bytes) -> None:
        super().__init__()
        name = re.sub(rb"\W", b"?", plugin[:_PLUGIN_NAME_BYTES]).decode() or "unknown"
        self.words = (
            f"user {{user}} authenticates with the plugin {name}, which clustercheckd does not"
            " support: change it to unix_socket, mysql_native_password or caching_sha2_password"
        )


def poll_failure(
    fault: BaseException, target: Target | None, phase: str, deadline_seconds: float
) -> PollFailure:
    """Return the reason of a failure, and what happened in clustercheckd's own words.

    target: None if it could not be resolved. phase: the step that failed, such as "connecting".
    """
    reason, words = _in_words(fault, target, phase, deadline_seconds)
    # Paths and names may contain any byte.
    return PollFailure(reason, one_line(words))


def error_number(fault: object) -> int:
    """Return the error number of the server or the client library; 0 if the fault has none."""
    number = fault.args[0] if isinstance(fault, MySQLError) and fault.args else 0
    return number if isinstance(number, int) else 0


def is_error_of_server(fault: BaseException) -> bool:
    """Return whether the server answered with an error, so that the connection still works."""
    # MySQL and MariaDB number the server's errors from 1000, except 2000 to 2999: those are the
    # client library's.
    return error_number(fault) // 1000 not in (0, 2)


def outcome_of(fault: BaseException, failure: PollFailure, phase: str) -> Outcome:
    """Return what a failed login says about the server: see the table of `app.database.logins`."""
    if phase == LOOKING_UP:
        return Outcome.FAILED
    if failure.reason in _REJECTIONS or isinstance(fault, ConnectionRefusedError):
        return Outcome.REJECTED
    if failure.reason in _REFUSALS or _is_tls_refusal(fault):
        return Outcome.REFUSED
    return Outcome.ANSWERED if is_error_of_server(fault) else Outcome.FAILED


def _is_tls_refusal(fault: BaseException) -> bool:
    """Return whether TLS is not possible until somebody changes a certificate or a setting."""
    tls = _tls_fault(fault)
    if tls is None:
        return isinstance(fault, PlainTextError)
    # An alert: the server does not accept our certificate.
    return isinstance(tls, ssl.SSLCertVerificationError) or "ALERT" in (
        tls.reason or ""
    )


def _tls_fault(fault: BaseException) -> ssl.SSLError | None:
    # aiomysql wraps a fault that occurs while it reads in an error of its own.
    cause = fault.__cause__
    if isinstance(cause, ssl.SSLError):
        return cause
    return fault if isinstance(fault, ssl.SSLError) else None


def _in_words(
    fault: BaseException, target: Target | None, phase: str, deadline_seconds: float
) -> tuple[Reason, str]:
    # Without a login, its settings could not be read, or no login has begun yet.
    where = target or "the server"
    if tls := _tls_fault(fault):
        return Reason.ERROR, f"no TLS connection to {where}: {_tls_words(tls)}"
    user = target.username if target else "unknown"
    number = error_number(fault)
    match fault:
        case SettingsError():
            return Reason.ERROR, str(fault)
        case UnicodeError():
            names = f"the host name in {where} or the user name {user}"
            return (
                Reason.ERROR,
                f"{names} is not valid: check MYSQL_HOST and MYSQL_USERNAME",
            )
        case UnfitServerError():
            return fault.reason, fault.words.format(
                target=where, user=user, phase=phase
            )
        case TimeoutError():
            return (
                Reason.TIMEOUT,
                f"no answer from {where} within {deadline_seconds:g} s while {phase}",
            )
        case _ if number:
            reason = _REASONS.get(number, Reason.ERROR)
        case (
            BrokenPipeError()
            | ConnectionResetError()
            | ConnectionAbortedError()
            | RuntimeError()
            | InterfaceError()
        ):
            # The peer accepted the connection and closed it: asyncio, uvloop and aiomysql each
            # raise their own.
            reason = Reason.CONNECTION_LOST
        case OSError():
            # Only a failed connect comes here: later, the driver wraps every OSError in an error of
            # its own.
            return Reason.UNREACHABLE, f"cannot connect to {where}: {_os_words(fault)}"
        case _:
            return (
                Reason.ERROR,
                f"{where} sent an answer that is not MySQL while {phase}",
            )
    words = _IN_WORDS.get(number, _IN_WORDS.get(reason, "")).format(
        user=user, phase=phase
    )
    return reason, f"{words} (error {number})" if number else words


def _os_words(fault: OSError) -> str:
    if isinstance(fault, socket.gaierror):
        return str(fault.strerror)
    # Event loops add addresses and phrases to strerror.
    return os.strerror(fault.errno or 0)


def _tls_words(fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {fault.verify_message}"
    return words_of_tls(fault)
