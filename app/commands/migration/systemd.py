"""Finds systemd's socket units, as in systemd.socket(5), and socat commands that run the script."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.commands.migration.found import Given, Runner
from app.commands.script import EVERY_NAME, assignments

_ATTRIBUTE = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*$")
_PARAMETER = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_PREFIXES = "@-:+!|"  # of a command line, systemd.service(5)
_SOCAT_LISTENERS = re.compile(r"(?i)tcp[46]?-l(?:isten)?:(\d+)(.*)")
_NETWORKS = {
    "localhost": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/64"),
    "any": ("0.0.0.0/0", "::/0"),
}
_WHO_MAY_CONNECT = "IPAddressAllow"


def systemd_runners(sockets: list[Path], directories: list[Path], *, also_off: bool) -> list[Runner]:
    """Return the socket units among these that run the script for each connection. Raises OSError.

    directories: where units are; the first takes precedence. also_off: treat units that are not enabled as running.
    """
    runners = (_socket_runner(socket, directories, also_off=also_off) for socket in sockets)
    return [runner for runner in runners if runner is not None]


def socat_runner(path: Path, command: str, where: str) -> Runner | None:
    """Return the runner if a command line is a socat that runs the script, else None."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    runner = Runner(f"the command in {path}")
    for word in words:
        if listener := _SOCAT_LISTENERS.fullmatch(word):
            runner.port = Given(listener[1], where)
            options = dict(option.partition("=")[::2] for option in listener[2].split(",") if option)
            if "bind" in options:
                runner.host = Given(options["bind"].strip("[]"), where)
            if "range" in options:
                network = options["range"].strip("[]").replace("]/", "/")
                runner.allow_from = [Given(network, where)]
        elif re.match(r"(?i)(exec|system):", word) and runner.take_command(word.partition(":")[2].split(), where):
            return runner
    return None


def service_runner(service: Path, directories: list[Path]) -> Runner | None:
    """Return the runner if a service unit is a socat that runs the script, else None. Raises OSError."""
    if "socat" not in service.read_text(errors="surrogateescape"):
        return None
    attributes = list(_attributes(service, directories))
    for attribute, given in attributes:
        if attribute == "ExecStart" and (runner := socat_runner(service, given.value, given.where)):
            runner.environ = _environment(attributes, runner.uncovered)
            return runner
    return None


def kolla_runner(path: Path) -> Runner | None:
    """Return the runner if a Kolla container's config.json runs the script. Raises OSError and ValueError."""
    command = json.loads(path.read_text()).get("command", "")
    runner = socat_runner(path, str(command), str(path))
    if runner is not None:
        runner.uncovered.append(
            Given(
                "the container's variables (MYSQL_USERNAME, MYSQL_PASSWORD, MYSQL_HOST ...) are not in this file: save"
                " them to a file with docker inspect, and type its path too",
                str(path),
            )
        )
    return runner


def _socket_runner(socket: Path, directories: list[Path], *, also_off: bool) -> Runner | None:
    name = socket.name.removesuffix(".socket")
    service = _found(f"{name}@.service", [socket.parent, *directories])
    if service is None:
        return None
    runner = Runner(f"the systemd socket unit {socket}")
    in_service = list(_attributes(service, directories))
    runner.environ = _environment(in_service, runner.uncovered)
    commands = [given for attribute, given in in_service if attribute == "ExecStart"]
    for given in commands:
        words = _command_words(given.value, runner.environ)
        if runner.take_command(words, given.where):
            break
    else:
        return None
    in_socket = list(_attributes(socket, directories))
    _listen(runner, [given for attribute, given in in_socket if attribute == "ListenStream"])
    _who_may_connect(runner, in_socket)
    wants = [directory / "sockets.target.wants" / socket.name for directory in [socket.parent, *directories]]
    if not also_off and not any(link.is_symlink() or link.exists() for link in wants):
        runner.off = "it is not enabled"
    return runner


def _found(name: str, directories: list[Path]) -> Path | None:
    return next((path for directory in directories if (path := directory / name).is_file()), None)


def _attributes(unit: Path, directories: list[Path]) -> Iterator[tuple[str, Given]]:
    """Read a unit and its drop-ins. An empty value removes the earlier ones, as for lists in systemd."""
    drop_ins = {
        path.name: path
        for directory in reversed([unit.parent, *directories])
        for path in (directory / f"{unit.name}.d").glob("*.conf")
    }
    found: list[tuple[str, Given]] = []
    for path in [unit, *(drop_ins[name] for name in sorted(drop_ins))]:
        for number, line in _lines(path):
            if attribute := _ATTRIBUTE.match(line):
                name, value = attribute.groups()
                if value:
                    found.append((name, Given(value, f"{path}, line {number} ({name})")))
                else:
                    found = [(other, given) for other, given in found if other != name]
    yield from found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield logical lines: a backslash at the end continues the line; comments in between are skipped."""
    began, text = 0, ""
    for number, line in enumerate(path.read_text(errors="surrogateescape").splitlines(), 1):
        if line.lstrip().startswith(("#", ";")):
            continue
        began = began or number
        if line.endswith("\\"):
            text += line[:-1] + " "
            continue
        yield began, text + line
        began, text = 0, ""


def _environment(attributes: list[tuple[str, Given]], uncovered: list[Given]) -> dict[str, Given]:
    environ: dict[str, Given] = {}
    from_files: dict[str, Given] = {}
    for attribute, given in attributes:
        if attribute == "Environment":
            for word in _words(given.value):
                name, _, value = word.partition("=")
                environ[name] = Given(value.replace("%%", "%"), given.where)
        elif attribute == "EnvironmentFile":
            path, complaints = given.value.removeprefix("-"), list[str]()
            for number, name, value in assignments(path, EVERY_NAME, complaints):
                from_files[name] = Given(value, f"{path}, line {number}")
            uncovered += [Given(complaint, given.where) for complaint in complaints]
    # EnvironmentFile takes precedence over Environment, systemd.exec(5).
    return {**environ, **from_files}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _command_words(command: str, environ: Mapping[str, Given]) -> list[str]:
    def value(parameter: re.Match[str]) -> str:
        given = environ.get(parameter[1] or parameter[2])
        return given.value if given else ""

    words = _words(command.lstrip(_PREFIXES).replace("%%", "%"))
    return [_PARAMETER.sub(value, word) for word in words]


def _listen(runner: Runner, streams: list[Given]) -> None:
    for given in streams:
        host, _, port = given.value.rpartition(":")
        if runner.port is not None or not port.isdecimal():
            text = f"{given.value}: clustercheckd listens on one address and port, or on systemd's sockets"
            runner.uncovered.append(Given(text, given.where))
            continue
        runner.port = Given(port, given.where)
        if host:
            runner.host = Given(host.strip("[]"), given.where)


def _who_may_connect(runner: Runner, attributes: list[tuple[str, Given]]) -> None:
    allowed = [given for attribute, given in attributes if attribute == _WHO_MAY_CONNECT]
    denied = [given for attribute, given in attributes if attribute == "IPAddressDeny"]
    if any("any" in given.value.split() for given in denied):
        runner.allow_from = [
            Given(network, given.where)
            for given in allowed
            for word in given.value.split()
            for network in _NETWORKS.get(word, (word,))
        ]
    else:
        runner.uncovered += [
            Given(f"IPAddressDeny={given.value}: CLUSTERCHECK_ALLOW_FROM can only list who may connect", given.where)
            for given in denied
        ]
