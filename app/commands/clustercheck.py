"""`clustercheck`: replaces Percona's script under xinetd, socat, Zabbix, keepalived and pacemaker.

It has the script's positional arguments, variables, files, output bytes and exit statuses. The verdict is
clustercheckd's. A process starts for each health check. Therefore this module does not import the HTTP server, which
would take longer than the poll.
"""

import contextlib
import os
import select
import socket
import stat
import sys
import time
from collections.abc import Mapping, Sequence

from app.commands.output import open_missing_streams
from app.commands.script import CONFIGURATION_FILES, Given, assignments, effective, positionals
from app.database.address import parse_port
from app.database.login import Database
from app.database.poller import poll_once
from app.durations import seconds_in
from app.reason import Reason
from app.sentences import sentence_of
from app.settings_error import SettingsError
from app.switches import DISABLED_FILE, ManualSwitches
from app.verdict import Policy, Verdict, decide

USAGE = (
    "Usage: clustercheck <user> <pass> <available_when_donor=0|1> <log_file> <available_when_readonly=0|1>"
    " <defaults_extra_file>\n"
    "       clustercheck - <available_when_donor=0|1> <log_file> <available_when_readonly=0|1> <defaults_extra_file>\n"
    "Prints an HTTP answer and exits 0 if this Galera node may take traffic, 1 if not. With - instead of user and\n"
    "password, both are read from the defaults file. Variables: MYSQL_USERNAME, MYSQL_PASSWORD, MYSQL_HOST,\n"
    "MYSQL_PORT, MYSQL_SOCKET, AVAILABLE_WHEN_DONOR, AVAILABLE_WHEN_READONLY, ERR_FILE, DEFAULTS_EXTRA_FILE,\n"
    "CLUSTERCHECK_DISABLED_FILE, CLUSTERCHECK_DEADLINE."
)

AVAILABLE, NOT_AVAILABLE = 0, 1

# In addition to the script's own.
_DEFAULTS = {"CLUSTERCHECK_DISABLED_FILE": DISABLED_FILE, "CLUSTERCHECK_DEADLINE": "0.8"}

# How long to wait for a client's request, and after the answer for the end of its connection.
_CLIENT_SECONDS = 0.1
_REQUEST_BYTES = 8192
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1


def main(arguments: Sequence[str] | None = None, configuration_files: Sequence[str] = CONFIGURATION_FILES) -> int:
    """Answer one health check on standard output; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return AVAILABLE
    values, complaints = _values(given, configuration_files)
    verdict = _verdict(values)
    if not verdict.available:
        complaints.append(f"{verdict.reason}: {verdict.detail}")
    # Answer first, so that a slow log file delays nobody.
    _answer(verdict)
    _tell(values["ERR_FILE"], complaints)
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def run() -> None:
    """Run the command and exit."""
    open_missing_streams()
    sys.exit(main())


def _verdict(values: Mapping[str, str]) -> Verdict:
    switches = ManualSwitches(values["CLUSTERCHECK_DISABLED_FILE"])()
    if switches.disabled_file is not None:
        # This needs no poll, so it works while the server hangs or a setting is wrong.
        return decide(None, 0.0, Policy(0.0), switches)
    try:
        database, policy = _settings(values)
    except SettingsError as fault:
        return Verdict(available=False, reason=Reason.ERROR, detail=str(fault))
    return decide(poll_once(database, policy.max_age_seconds), 0.0, policy, switches)


def _values(arguments: Sequence[str], configuration_files: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the value of each variable that has one, and a line for each mistake."""
    complaints: list[str] = []
    given = [Given(name, value, "the environment") for name, value in os.environ.items()]
    for path in configuration_files:
        if os.path.exists(path):  # noqa: PTH110 (never raises)
            given += assignments(path, complaints)
    given += positionals(arguments, "the arguments")
    return _DEFAULTS | {name: found.value for name, found in effective(given).items()}, complaints


def _settings(values: Mapping[str, str]) -> tuple[Database, Policy]:
    try:
        deadline_seconds = seconds_in(values["CLUSTERCHECK_DEADLINE"])
    except ValueError:
        deadline_seconds = 0.0
    if not 0.05 <= deadline_seconds <= 60:  # noqa: PLR2004 (clustercheckd's own bounds)
        raise SettingsError(f"CLUSTERCHECK_DEADLINE={values['CLUSTERCHECK_DEADLINE']}: must be 0.05 to 60 seconds")
    if not values["CLUSTERCHECK_DISABLED_FILE"].startswith("/"):
        raise SettingsError(
            f"CLUSTERCHECK_DISABLED_FILE={values['CLUSTERCHECK_DISABLED_FILE']}: must be an absolute path"
        )
    for name in ("AVAILABLE_WHEN_DONOR", "AVAILABLE_WHEN_READONLY"):
        if values[name] not in ("0", "1"):
            raise SettingsError(f"{name}={values[name]}: must be 0 or 1")
    defaults_file, port = values["DEFAULTS_EXTRA_FILE"], values.get("MYSQL_PORT")
    database = Database(
        socket=values.get("MYSQL_SOCKET"),
        host=values.get("MYSQL_HOST"),
        port=parse_port("MYSQL_PORT", port) if port else None,
        username=values["MYSQL_USERNAME"] or None,
        # If the password is empty, the defaults file supplies it.
        password=values["MYSQL_PASSWORD"] or None,
        # The script ignores a file that it cannot read.
        defaults_extra_file=defaults_file if os.access(defaults_file, os.R_OK) else None,
    )
    policy = Policy(
        max_age_seconds=deadline_seconds,
        available_when_donor=values["AVAILABLE_WHEN_DONOR"] == "1",
        available_when_readonly=values["AVAILABLE_WHEN_READONLY"] == "1",
    )
    return database, policy


def _tell(err_file: str, complaints: Sequence[str]) -> None:
    """Write the mistakes to the file in which the script keeps the mysql client's errors. Ignore a failure."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = "".join(f"{now} {line}\n" for line in complaints)
    with contextlib.suppress(OSError):
        # Like the script, truncate the file each time. O_NONBLOCK: do not wait for a reader of a pipe.
        file = os.open(err_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644)
        try:
            os.write(file, text.encode("ascii", "backslashreplace"))
        finally:
            os.close(file)


def _answer(verdict: Verdict) -> None:
    """Print the script's output, and close a client's connection without resetting it."""
    status = "200 OK" if verdict.available else "503 Service Unavailable"
    body = f"{sentence_of(verdict)}\r\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    client = _client()
    # Closing a connection with unread bytes would reset it.
    if client is not None:
        _read(client)
    with contextlib.suppress(OSError):
        os.write(_STANDARD_OUTPUT, (head + body).encode())
        if client is not None:
            client.shutdown(socket.SHUT_WR)
            _read(client)


def _client() -> socket.socket | None:
    """Return the client's connection if standard input is one, as under xinetd and socat."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.fstat(_STANDARD_INPUT).st_mode):
            return socket.socket(fileno=os.dup(_STANDARD_INPUT))
    return None


def _read(client: socket.socket) -> None:
    """Read what the client sends, or the end of its connection, within `_CLIENT_SECONDS`."""
    with contextlib.suppress(OSError):
        if select.select([client], [], [], _CLIENT_SECONDS)[0]:
            client.recv(_REQUEST_BYTES)


if __name__ == "__main__":
    run()
