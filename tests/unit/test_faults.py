"""Exceptions of polls and logins, into reasons and words; and what they mean for the next login."""

import socket
import ssl
import struct

import pytest
from pymysql.err import InterfaceError, InternalError, OperationalError

from app.database.faults import (
    CONNECTING,
    LOGGING_IN,
    LOOKING_UP,
    PlainTextError,
    RefusedPluginError,
    outcome_of,
    poll_failure,
)
from app.database.logins import Outcome
from app.settings.database import Target
from app.settings.error import SettingsError

LOGIN = Target("", "db", 3306, "someone", "geheim")
SERVER_SAYS = "message of the server"
_, REJECTED, REFUSED, DELAYED, ANSWERED, _, FAILED = Outcome


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


CLOSED = "the server closed the connection while connecting"
UNREACHABLE = "cannot connect to db:3306"
NO_TLS = "no TLS connection to db:3306"
NO_MYSQL = "db:3306 sent an answer that is not MySQL"

OF_SERVER = [
    ("too-many-connections", ANSWERED, (1040, 1203, 1226)),
    (
        "access-denied",
        REFUSED,
        (1045, 1142, 1227, 1251, 1275, 1524, 1698, 1820, 1862),
    ),
    ("access-denied", REFUSED, (3118, 3159, 3955, 4150, 4151)),
    ("host-blocked", REFUSED, (1129, 1130)),
    ("offline", ANSWERED, (3032,)),
    ("rejects-logins", REJECTED, (1037, 1041, 1135, 1184)),
    ("connection-lost", REJECTED, (1053, 1927, 2006, 2013, 3169, 4031)),
    ("error", ANSWERED, (1043, 1205, 1290, 1317, 1969, 1999, 3024)),
]
FAULTS: list[tuple[Exception, str, Outcome, str]] = [
    *(
        (OperationalError(number, SERVER_SAYS), reason, then, f"(error {number})")
        for reason, then, numbers in OF_SERVER
        for number in numbers
    ),
    (TimeoutError(), "timeout", REJECTED, "within 0.3 s while connecting"),
    (
        ConnectionRefusedError(111, "x"),
        "unreachable",
        REJECTED,
        "Connection refused",
    ),
    (OSError(113, "x"), "unreachable", FAILED, f"{UNREACHABLE}: No route to host"),
    # Event loops make some without a number.
    (OSError("AF_UNIX path too long"), "unreachable", FAILED, "path too long"),
    (
        socket.gaierror(-2, "not known"),
        "unreachable",
        FAILED,
        f"{UNREACHABLE}: not known",
    ),
    *(
        (fault, "connection-lost", REJECTED, CLOSED)
        for fault in (
            BrokenPipeError(),
            ConnectionResetError(),
            ConnectionAbortedError(),
            RuntimeError("the handler is closed"),
            InterfaceError("(0, 'Not connected')"),
        )
    ),
    (InternalError("Packet sequence number wrong"), "error", FAILED, NO_MYSQL),
    (struct.error("unpack requires"), "error", FAILED, NO_MYSQL),
    (UnicodeError(), "error", FAILED, "MYSQL_HOST and MYSQL_USERNAME"),
    (PlainTextError(), "error", REFUSED, "db:3306 offers no TLS"),
    (RefusedPluginError(b"p" * 65), "access-denied", REFUSED, f" {'p' * 64}, "),
    (RefusedPluginError(b""), "access-denied", REFUSED, "plugin unknown, "),
    (SettingsError("MYSQL_SSL_CA: é{}"), "error", FAILED, "MYSQL_SSL_CA: \\xe9{}"),
    (
        certificate_error(),
        "error",
        REFUSED,
        f"{NO_TLS}: certificate not accepted: self-",
    ),
    (
        caused_by(tls_error("TLSV13_ALERT_X")),
        "error",
        REFUSED,
        f"{NO_TLS}: tlsv13 alert x",
    ),
    (
        tls_error("WRONG_VERSION_NUMBER"),
        "error",
        FAILED,
        f"{NO_TLS}: wrong version number",
    ),
    (tls_error(""), "error", FAILED, f"{NO_TLS}: sslerror"),
]


@pytest.mark.parametrize(
    ("fault", "reason", "then", "words"), FAULTS, ids=[repr(row[0]) for row in FAULTS]
)
def test_a_fault_has_its_reason_and_words_and_decides_about_the_next_login(
    fault: Exception, reason: str, then: Outcome, words: str
) -> None:
    failure = poll_failure(fault, LOGIN, "connecting", 0.3)
    assert failure.reason == reason
    assert words in failure.detail
    assert SERVER_SAYS not in failure.detail
    assert outcome_of(fault, failure, "connecting") is then


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "User 'x' has exceeded the 'max_user_connections' resource",
            "max_user_connections",
        ),
        (
            "Benutzer 'x' hat 'max_queries_per_hour' überschritten",
            "max_queries_per_hour",
        ),
        ("User 'x' has exceeded the 'max_questions' resource", "max_questions"),
        ("a limit that nobody knows", "limit"),
    ],
)
def test_the_limit_that_an_account_has_reached_is_named(text: str, words: str) -> None:
    failure = poll_failure(OperationalError(1226, text), LOGIN, "connecting", 0.3)
    assert failure.detail == f"user someone has reached its {words} (error 1226)"


@pytest.mark.parametrize(
    ("phase", "refusals", "outcome"),
    [
        (CONNECTING, 0, REJECTED),
        # MySQL's connection_control delays the account, and no other client.
        (CONNECTING, 1, DELAYED),
        (LOOKING_UP, 1, FAILED),
        # A password that was accepted is none that was refused.
        (LOGGING_IN, 1, REJECTED),
    ],
)
def test_no_answer_after_a_refusal_says_nothing_of_others(
    phase: str, refusals: int, outcome: Outcome
) -> None:
    fault = TimeoutError()
    failure = poll_failure(fault, LOGIN, phase, 5)
    assert outcome_of(fault, failure, phase, refusals) is outcome
    assert outcome_of(fault, failure, LOOKING_UP, refusals) is FAILED


def test_without_a_login_the_words_name_no_user() -> None:
    failure = poll_failure(OperationalError(1045), None, "connecting", 0.3)
    assert "user unknown" in failure.detail
