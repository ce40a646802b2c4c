"""Exceptions of polls and logins, into reasons and words; and what they mean for the next login."""

import socket
import ssl
import struct

import pytest
from pymysql.err import InterfaceError, InternalError, MySQLError, OperationalError

from app.database.faults import (
    LOOKING_UP,
    PlainTextError,
    RefusedPluginError,
    error_number,
    is_error_of_server,
    outcome_of,
    poll_failure,
)
from app.database.login import Login
from app.database.logins import Outcome
from app.settings.error import SettingsError
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason

LOGIN = Login(host="db", username="someone", password="geheim")
SERVER_SAYS = "message of the server"
REFUSED, REJECTED, ANSWERED, FAILED = (
    Outcome.REFUSED,
    Outcome.REJECTED,
    Outcome.ANSWERED,
    Outcome.FAILED,
)


def tls_error(reason: str) -> ssl.SSLError:
    fault = ssl.SSLError(1, "what OpenSSL says")
    fault.reason = reason
    return fault


def certificate_error() -> ssl.SSLCertVerificationError:
    fault = ssl.SSLCertVerificationError(1, "what OpenSSL says")
    fault.verify_message = "self-signed certificate"
    return fault


def caused_by(cause: Exception) -> OperationalError:
    fault = OperationalError(2013, SERVER_SAYS)
    fault.__cause__ = cause
    return fault


FULL = "the server has no connection left for user someone"
OWN_LIMIT = "account someone has reached its own limit, such as MAX_USER_CONNECTIONS"
DENIED = "the server refused user someone"
BLOCKED = "the server does not accept connections from this host"
OFFLINE = "the server is in offline mode and accepts only administrators"
NO_LOGINS = "the server takes no logins"
CLOSED = "the server closed the connection while connecting"
ERROR = "the server answered with an error while connecting"
UNREACHABLE = "cannot connect to db:3306"
NO_TLS = "no TLS connection to db:3306"
NO_MYSQL = "db:3306 sent an answer that is not MySQL while connecting"
NO_TLS_OFFERED = "offers no TLS, but MYSQL_SSL* or the option file requires it"
PLUGIN = "user someone authenticates with the plugin"
NEED = (
    "which clustercheckd does not support: change it to unix_socket, mysql_native_password or"
    " caching_sha2_password"
)
NO_NAME = "the host name in db:3306 or the user name someone is not valid: check MYSQL_HOST and MYSQL_USERNAME"

OF_SERVER = [
    (Reason.TOO_MANY_CONNECTIONS, ANSWERED, FULL, (1040, 1203)),
    (Reason.TOO_MANY_CONNECTIONS, ANSWERED, OWN_LIMIT, (1226,)),
    (Reason.ACCESS_DENIED, REFUSED, DENIED, (1045, 1698, 1251, 1227, 1820, 1862, 3118, 4151)),
    (Reason.HOST_BLOCKED, REFUSED, BLOCKED, (1129, 1130)),
    (Reason.OFFLINE, ANSWERED, OFFLINE, (3032,)),
    (Reason.REJECTS_LOGINS, REJECTED, NO_LOGINS, (1037, 1041, 1135, 1184)),
    (Reason.CONNECTION_LOST, REJECTED, CLOSED, (1053, 2006, 2013)),
    (Reason.ERROR, ANSWERED, ERROR, (1205, 1999)),
]
FAULTS: list[tuple[Exception, Reason, Outcome, str]] = [
    *(
        (OperationalError(number, SERVER_SAYS), reason, then, f"{words} (error {number})")
        for reason, then, words, numbers in OF_SERVER
        for number in numbers
    ),
    (
        TimeoutError(),
        Reason.TIMEOUT,
        REJECTED,
        "no answer from db:3306 within 0.3 s while connecting",
    ),
    (
        ConnectionRefusedError(111, "x"),
        Reason.UNREACHABLE,
        REJECTED,
        f"{UNREACHABLE}: Connection refused",
    ),
    (OSError(113, "x"), Reason.UNREACHABLE, FAILED, f"{UNREACHABLE}: No route to host"),
    (OSError("x"), Reason.UNREACHABLE, FAILED, f"{UNREACHABLE}: OSError"),
    (socket.gaierror(-2, "not known"), Reason.UNREACHABLE, FAILED, f"{UNREACHABLE}: not known"),
    (BrokenPipeError(), Reason.CONNECTION_LOST, REJECTED, CLOSED),
    (ConnectionResetError(), Reason.CONNECTION_LOST, REJECTED, CLOSED),
    (ConnectionAbortedError(), Reason.CONNECTION_LOST, REJECTED, CLOSED),
    (RuntimeError("the handler is closed"), Reason.CONNECTION_LOST, REJECTED, CLOSED),
    (InterfaceError("(0, 'Not connected')"), Reason.CONNECTION_LOST, REJECTED, CLOSED),
    (InternalError("Packet sequence number wrong"), Reason.ERROR, FAILED, NO_MYSQL),
    (struct.error("unpack requires"), Reason.ERROR, FAILED, NO_MYSQL),
    (UnicodeError(), Reason.ERROR, FAILED, NO_NAME),
    (PlainTextError(), Reason.ERROR, REFUSED, f"db:3306 {NO_TLS_OFFERED}"),
    (RefusedPluginError(b"p" * 65), Reason.ACCESS_DENIED, REFUSED, f"{PLUGIN} {'p' * 64}, {NEED}"),
    (RefusedPluginError(b""), Reason.ACCESS_DENIED, REFUSED, f"{PLUGIN} unknown, {NEED}"),
    (SettingsError("MYSQL_SSL_CA: é{}"), Reason.ERROR, FAILED, "MYSQL_SSL_CA: \\xe9{}"),
    (
        certificate_error(),
        Reason.ERROR,
        REFUSED,
        f"{NO_TLS}: certificate not accepted: self-signed certificate",
    ),
    (caused_by(tls_error("TLSV13_ALERT_X")), Reason.ERROR, REFUSED, f"{NO_TLS}: tlsv13 alert x"),
    (tls_error("WRONG_VERSION_NUMBER"), Reason.ERROR, FAILED, f"{NO_TLS}: wrong version number"),
    (tls_error(""), Reason.ERROR, FAILED, f"{NO_TLS}: sslerror"),
]


@pytest.mark.parametrize(
    ("fault", "reason", "then", "words"), FAULTS, ids=[repr(row[0]) for row in FAULTS]
)
def test_a_fault_has_its_reason_and_words_and_decides_about_the_next_login(
    fault: Exception, reason: Reason, then: Outcome, words: str
) -> None:
    failure = poll_failure(fault, LOGIN, "connecting", 0.3)
    assert failure == PollFailure(reason, words)
    assert outcome_of(fault, failure, "connecting") is then


def test_a_name_that_is_not_found_in_time_is_not_the_servers_fault() -> None:
    failure = poll_failure(TimeoutError(), LOGIN, LOOKING_UP, 5)
    assert failure.detail == "no answer from db:3306 within 5 s while looking up the host's name"
    assert outcome_of(TimeoutError(), failure, LOOKING_UP) is FAILED


def test_without_a_login_the_words_name_no_user() -> None:
    failure = poll_failure(OperationalError(1045), None, "connecting", 0.3)
    assert failure.detail == "the server refused user unknown (error 1045)"


@pytest.mark.parametrize(
    ("fault", "number", "of_server"),
    [
        *((OperationalError(number), number, True) for number in (1000, 1999, 3000)),
        *((OperationalError(number), number, False) for number in (999, 2000, 2999)),
        (MySQLError("2013"), 0, False),
        (MySQLError(), 0, False),
        (OSError(1040, "x"), 0, False),
    ],
)
def test_an_error_of_the_server_is_known_by_its_number(
    fault: Exception, number: int, *, of_server: bool
) -> None:
    assert (error_number(fault), is_error_of_server(fault)) == (number, of_server)
