"""Translates exceptions. Pure. Driver and server text may quote credentials: the words are ours."""

import os
import re
import socket
import ssl

from pymysql.err import InterfaceError, MySQLError

from app.database.logins import Outcome
from app.settings.database import Target
from app.settings.error import SettingsError
from app.settings.tls import words_of_tls
from app.text import one_line
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason

_PLUGIN_NAME_BYTES = 64  # the longest plugin name in MySQL

LOOKING_UP, CONNECTING = "looking up the host's name", "connecting"
LOGGING_IN = "logging in"
"""The phases of a login. In the last, the password has been accepted."""

_LOST = Reason.CONNECTION_LOST, "the server closed the connection while {phase}"

# What a login or our statements can get, of MariaDB 11.8's list and MySQL's manual.
_ERRORS = {
    (
        1040,  # ER_CON_COUNT_ERROR
        1203,  # ER_TOO_MANY_USER_CONNECTIONS
    ): (Reason.TOO_MANY_CONNECTIONS, "no connection is left for user {user}"),
    # ER_USER_LIMIT_REACHED
    (1226,): (Reason.TOO_MANY_CONNECTIONS, "user {user} has reached its {fault}"),
    (
        1045,  # ER_ACCESS_DENIED_ERROR
        1142,  # ER_TABLEACCESS_DENIED_ERROR: MySQL 5.7 without show_compatibility_56
        1227,  # ER_SPECIFIC_ACCESS_DENIED_ERROR: no privilege for admin_port
        1251,  # ER_NOT_SUPPORTED_AUTH_MODE
        1275,  # ER_SERVER_IS_IN_SECURE_AUTH_MODE: a password from before 4.1
        1524,  # ER_PLUGIN_IS_NOT_LOADED: that of the account
        1698,  # ER_ACCESS_DENIED_NO_PASSWORD_ERROR
        1820,  # ER_MUST_CHANGE_PASSWORD
        1862,  # ER_MUST_CHANGE_PASSWORD_LOGIN
        3118,  # ER_ACCOUNT_HAS_BEEN_LOCKED of MySQL
        3955,  # by FAILED_LOGIN_ATTEMPTS of MySQL
        4150,  # ER_USER_IS_BLOCKED, by max_password_errors of MariaDB
        4151,  # ER_ACCOUNT_HAS_BEEN_LOCKED of MariaDB
    ): (Reason.ACCESS_DENIED, "the server refused user {user}"),
    # ER_SECURE_TRANSPORT_REQUIRED of MySQL, and of MariaDB 11.8
    (3159,): (Reason.ACCESS_DENIED, "the server requires TLS: set MYSQL_SSL=1"),
    # ER_HOST_IS_BLOCKED
    (1129,): (
        Reason.HOST_BLOCKED,
        "the server has blocked this host, after too many broken connections",
    ),
    # ER_HOST_NOT_PRIVILEGED
    (1130,): (Reason.HOST_BLOCKED, "no account of the server is for this host"),
    # ER_SERVER_OFFLINE_MODE
    (3032,): (
        Reason.OFFLINE,
        "the server is in offline mode and accepts only administrators",
    ),
    (
        1037,  # ER_OUTOFMEMORY
        1041,  # ER_OUT_OF_RESOURCES
        1135,  # ER_CANT_CREATE_THREAD
    ): (Reason.REJECTS_LOGINS, "the server takes no logins"),
    # ER_NEW_ABORTING_CONNECTION
    (1184,): (
        Reason.REJECTS_LOGINS,
        "the server's init_connect failed for user {user}",
    ),
    (
        1053,  # ER_SERVER_SHUTDOWN
        1927,  # ER_CONNECTION_KILLED of MariaDB
        3169,  # ER_SESSION_WAS_KILLED of MySQL
        4031,  # ER_CLIENT_INTERACTION_TIMEOUT of MySQL
        2006,  # CR_SERVER_GONE_ERROR
        2013,  # CR_SERVER_LOST
    ): _LOST,
}
_LIMIT = re.compile("max_(user_connections|[a-z]+_per_hour|questions|updates)")
_OTHER_ERROR = Reason.ERROR, "the server answered with an error while {phase}"


class PlainTextError(Exception):
    """TLS is required and the server does not offer it."""


class UnaskedBytesError(Exception):
    """The server sent more than any answer needs, or more than the statements' answers."""


class HeldError(Exception):
    """The server may have as many sessions of ours as it is ever to have."""


class RefusedPluginError(Exception):
    """The server requested this authentication plugin."""


_FAULTS: dict[type | tuple[type, ...], tuple[Reason, str]] = {
    PlainTextError: (
        Reason.ERROR,
        "{target} offers no TLS, but MYSQL_SSL* requires it",
    ),
    UnaskedBytesError: (
        Reason.ERROR,
        "{target} sent more than it was asked for while {phase}",
    ),
    HeldError: (
        Reason.TIMEOUT,
        "{target} neither answers nor ends the sessions that clustercheckd has there",
    ),
    RefusedPluginError: (
        Reason.ACCESS_DENIED,
        (
            "user {user} authenticates with the plugin {fault}, which clustercheckd does not"
            " support: change it to unix_socket, mysql_native_password or caching_sha2_password"
        ),
    ),
    ssl.SSLError: (Reason.ERROR, "no TLS connection to {target}: {fault}"),
    SettingsError: (Reason.ERROR, "{fault}"),
    UnicodeError: (
        Reason.ERROR,
        (
            "the host name in {target} or the user name {user} is not valid:"
            " check MYSQL_HOST and MYSQL_USERNAME"
        ),
    ),
    TimeoutError: (
        Reason.TIMEOUT,
        "no answer from {target} within {seconds:g} s while {phase}",
    ),
    # The peer closed the connection: asyncio, uvloop and aiomysql each raise their own.
    (
        BrokenPipeError,
        ConnectionResetError,
        ConnectionAbortedError,
        RuntimeError,
        InterfaceError,
    ): _LOST,
    # Only a failed connect: later, the driver wraps every OSError in an error of its own.
    OSError: (Reason.UNREACHABLE, "cannot connect to {target}: {fault}"),
    BaseException: (
        Reason.ERROR,
        "{target} sent an answer that is not MySQL while {phase}",
    ),
}
"""What has no number: the first that fits."""

_REJECTIONS = (Reason.REJECTS_LOGINS, Reason.CONNECTION_LOST, Reason.TIMEOUT)
"""Clients cannot log in either."""

_REFUSALS = (Reason.ACCESS_DENIED, Reason.HOST_BLOCKED)
"""An immediate retry would only add a line to the server's log."""


def poll_failure(
    fault: BaseException, target: Target | None, phase: str, deadline_seconds: float
) -> PollFailure:
    """Return the reason, and what happened. target: None if it could not be resolved."""
    fault = _cause(fault)
    number = error_number(fault)
    if number:
        errors = (row for numbers, row in _ERRORS.items() if number in numbers)
        reason, words = next(errors, _OTHER_ERROR)
        words += f" (error {number})"
    else:
        reason, words = next(
            row for kind, row in _FAULTS.items() if isinstance(fault, kind)
        )
    words = words.format(
        target=target or "the server",
        user=target.username if target else "unknown",
        phase=phase,
        seconds=deadline_seconds,
        fault=_words_of(fault),
    )
    # Paths and names may contain any byte.
    return PollFailure(reason, one_line(words))


def error_number(fault: object) -> int:
    """Return the error number of the server or the client library, or 0."""
    match fault:
        case MySQLError(args=(int(number), *_)):
            return number
    return 0


def is_error_of_server(fault: BaseException) -> bool:
    """Return whether the server answered with an error: 2000 to 2999 are the client library's."""
    return error_number(fault) // 1000 not in (0, 2)


def outcome_of(
    fault: BaseException, failure: PollFailure, phase: str, refusals: int = 0
) -> Outcome:
    """Return what a failed login says about the server. refusals: of our account before it."""
    if phase == LOOKING_UP:
        return Outcome.FAILED
    if refusals and failure.reason is Reason.TIMEOUT and phase != LOGGING_IN:
        return Outcome.DELAYED
    if failure.reason in _REJECTIONS or isinstance(fault, ConnectionRefusedError):
        return Outcome.REJECTED
    if failure.reason in _REFUSALS or _is_tls_refusal(_cause(fault)):
        return Outcome.REFUSED
    return Outcome.ANSWERED if is_error_of_server(fault) else Outcome.FAILED


def _is_tls_refusal(fault: BaseException) -> bool:
    if isinstance(fault, ssl.SSLCertVerificationError | PlainTextError):
        return True
    # An alert: the server does not accept our certificate.
    return isinstance(fault, ssl.SSLError) and "ALERT" in str(fault.reason)


def _cause(fault: BaseException) -> BaseException:
    # aiomysql wraps a fault that occurs while it reads in an error of its own.
    return fault.__cause__ if isinstance(fault.__cause__, ssl.SSLError) else fault


def _words_of(fault: BaseException) -> str:
    match fault:
        case RefusedPluginError(args=(bytes(plugin),)):
            name = re.sub(rb"\W", b"?", plugin[:_PLUGIN_NAME_BYTES])
            return name.decode() or "unknown"
        case MySQLError():
            # The limit of error 1226, as in SQL in every language.
            found = _LIMIT.search(str(fault))
            return found[0] if found else "limit"
        case ssl.SSLCertVerificationError():
            return f"certificate not accepted: {fault.verify_message}"
        case ssl.SSLError():
            return words_of_tls(fault)
        case socket.gaierror():
            return str(fault.strerror)
        case OSError():
            # Event loops add addresses and phrases to strerror.
            return os.strerror(fault.errno) if fault.errno else str(fault)
    return str(fault)
