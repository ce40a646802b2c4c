"""`clustercheck`: replaces Percona's script under xinetd, socat, Zabbix, keepalived and pacemaker.

It has the script's positional arguments, variables, files, output bytes and exit statuses. The
verdict is clustercheckd's. A process starts for each health check. Therefore this module does not
import the HTTP server, which would take longer than the poll.
"""

import contextlib
import os
import select
import socket
import sys
from collections.abc import Mapping, Sequence

from app.commands.exit_status import AVAILABLE, NOT_AVAILABLE
from app.commands.output import open_missing_streams, say
from app.database.poller import poll_once
from app.script.inputs import CONFIGURATION_FILES, assignments, effective, positionals
from app.settings.disabled_file import DISABLED_FILE, switches_now
from app.settings.files import SettingsError
from app.settings.target import Database, parse_port
from app.settings.values import Variable, seconds_in
from app.verdict.body import script_body_of
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Verdict, decide

USAGE = """\
Usage: clustercheck <user> <pass> <available_when_donor=0|1> <log_file>
                    <available_when_readonly=0|1> <defaults_extra_file>
       clustercheck - <available_when_donor=0|1> <log_file>
                    <available_when_readonly=0|1> <defaults_extra_file>
Prints an HTTP answer and exits 0 if this Galera node may take traffic, 1 if not.
With - instead of user and password, both are read from the defaults file.
Variables: MYSQL_USERNAME, MYSQL_PASSWORD, MYSQL_HOST, MYSQL_PORT, MYSQL_SOCKET,
AVAILABLE_WHEN_DONOR, AVAILABLE_WHEN_READONLY, ERR_FILE, DEFAULTS_EXTRA_FILE,
CLUSTERCHECK_DISABLED_FILE, CLUSTERCHECK_DEADLINE."""

# How long to wait for a client's request, and after the answer for the end of its connection.
_CLIENT_SECONDS = 0.1
_REQUEST_BYTES = 8192
_STANDARD_INPUT = 0
_STANDARD_OUTPUT = 1


def run() -> int:
    """Answer one health check on standard output; return the exit status."""
    open_missing_streams()
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("-h", "--help"):
        say(USAGE)
        return AVAILABLE
    complaints: list[str] = []
    in_environment = [Variable(name, value) for name, value in os.environ.items()]
    in_files = assignments(CONFIGURATION_FILES, complaints)
    used = effective([*in_environment, *in_files, *positionals(arguments)])
    values = {name: variable.value for name, variable in used.items()}
    try:
        verdict = _verdict(values)
    except SettingsError as fault:
        verdict = Verdict(available=False, reason=Reason.ERROR, detail=str(fault))
    if not verdict.available:
        complaints.append(f"{verdict.reason}: {verdict.detail}")
    # Answer first, so that a slow log file delays nobody.
    _answer(verdict)
    _tell(values["ERR_FILE"], complaints)
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def _verdict(values: Mapping[str, str]) -> Verdict:
    """Return the verdict. Raises `SettingsError`."""
    disabled_file = values.get("CLUSTERCHECK_DISABLED_FILE", DISABLED_FILE)
    switches = switches_now(disabled_file)
    if switches.disabled_file is not None:
        # This needs no poll, so it works while the server hangs or a setting is wrong.
        return decide(None, 0.0, Policy(), switches)
    for name in ("AVAILABLE_WHEN_DONOR", "AVAILABLE_WHEN_READONLY"):
        if values[name] not in ("0", "1"):
            raise SettingsError(f"{name} must be 0 or 1")
    if not disabled_file.startswith("/"):
        raise SettingsError("CLUSTERCHECK_DISABLED_FILE must be an absolute path")
    try:
        deadline_seconds = seconds_in(values.get("CLUSTERCHECK_DEADLINE", "0.8"))
    except ValueError as fault:
        raise SettingsError(f"CLUSTERCHECK_DEADLINE must be {fault}") from None
    policy = Policy(
        available_when_donor=values["AVAILABLE_WHEN_DONOR"] == "1",
        available_when_readonly=values["AVAILABLE_WHEN_READONLY"] == "1",
    )
    # Within the service's own bounds.
    result = poll_once(_database(values), min(max(0.05, deadline_seconds), 60.0))
    return decide(result, 0.0, policy, switches)


def _database(values: Mapping[str, str]) -> Database:
    port = values.get("MYSQL_PORT")
    defaults_file = values["DEFAULTS_EXTRA_FILE"]
    return Database(
        mysql_socket=values.get("MYSQL_SOCKET"),
        mysql_host=values.get("MYSQL_HOST"),
        mysql_port=parse_port("MYSQL_PORT", port) if port else None,
        mysql_username=values["MYSQL_USERNAME"],
        # If the password is empty, the defaults file supplies it.
        mysql_password=values["MYSQL_PASSWORD"] or None,
        # The script ignores a file that it cannot read.
        defaults_extra_file=defaults_file
        if os.access(defaults_file, os.R_OK)
        else None,
    )


def _tell(err_file: str, complaints: Sequence[str]) -> None:
    """Write the mistakes to the script's file of errors; ignore a failure."""
    # O_NONBLOCK: do not wait for a reader of a pipe.
    with (
        contextlib.suppress(OSError),
        open(
            err_file,
            "w",
            encoding="ascii",
            errors="backslashreplace",
            opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK, 0o644),
        ) as file,
    ):
        file.writelines(f"{line}\n" for line in complaints)


def _answer(verdict: Verdict) -> None:
    """Print the script's output, and close a client's connection without resetting it."""
    status = "200 OK" if verdict.available else "503 Service Unavailable"
    body = script_body_of(verdict)
    head = (
        f"HTTP/1.1 {status}\r\n"
        "Content-Type: text/plain\r\n"
        "Connection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    client = None
    # Standard input is the client's connection under xinetd and socat only.
    with contextlib.suppress(OSError):
        client = socket.socket(fileno=os.dup(_STANDARD_INPUT))
        # Closing a connection with unread bytes would reset it.
        _read(client)
    with contextlib.suppress(OSError):
        os.write(_STANDARD_OUTPUT, (head + body).encode())
        if client is not None:
            client.shutdown(socket.SHUT_WR)
            _read(client)


def _read(client: socket.socket) -> None:
    """Read what the client sends, or the end of its connection. Raises OSError."""
    if select.select([client], [], [], _CLIENT_SECONDS)[0]:
        client.recv(_REQUEST_BYTES)


if __name__ == "__main__":
    sys.exit(run())
