"""`clustercheckd migrate`: turns xinetd's service and the script's variables into an env file for
clustercheckd.

It does not evaluate the script. It lists the lines in which the script sets a variable itself, to
be checked by hand.
"""

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path, PurePath

from app import __version__
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.script import inputs as script
from app.settings.error import SettingsError
from app.settings.settings import settings_of
from app.settings.switches import DISABLED_FILE
from app.settings.variables import Variable
from app.verdict.text import one_line

_GROUP, _MODE = "clustercheck", 0o640

_SCRIPTS = ("clustercheck", "mysqlchk")
# xinetd ignores such files.
_IGNORED = re.compile(r"\.|~$")
_SECTION = re.compile(r"[ \t]*(defaults|service)\b[^=\n]*$")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*(\+?)=\s*(.*?)\s*$")
_LOOPBACK = ip_address("127.0.0.1")
_LISTENING = {
    "interface": "CLUSTERCHECK_HOST",
    "bind": "CLUSTERCHECK_HOST",
    "port": "CLUSTERCHECK_PORT",
}

_POSITIONS = {name: str(number) for number, name in enumerate(script.DEFAULTS, 1)}
_NAMES = "|".join(script.VARIABLES)
# Every form that sets a variable (declare, read, printf -v ...), another file to source, another
# disabled file.
_TO_CHECK = re.compile(
    rf"(?<![\w$])(?<!\$\{{)(?:{_NAMES})\b|\$\{{(?:{_NAMES}):?="
    r"|(?:^|[;&|({]|\b(?:then|do|else)\b)\s*(?:\.|source)\s+[\"']?[\w$/~.]"
    r"|/\S*disabled\b"
)
# The forms of the public scripts: an argument or a default; in newer ones the variable as it was
# given, or a default. One of them has a dash too many:
# MYSQL_USERNAME="${MYSQL_USERNAME:=-clustercheckuser}".
_OWN_DEFAULT = re.compile(
    r"""(?P<name>\w+)=(?P<quote>"?)\$\{(?P<source>\w+):?(-|=-?)(?P<default>[^}]*)\}(?P=quote)\s*"""
)
_ARGUMENT = re.compile(r"\$\{?[1-9@*]|\b(shift|getopts)\b")
_NOT_CODE = re.compile(r"(?m)^[ \t]*#.*|^.*--help.*|'[^'\n]*'")
_MAYBE_SECRET = re.compile(r"(?i)pass|pw|secret|-p")
_HIDDEN = "not shown, because it may contain a password"
# A shell, systemd and clustercheckd read these differently between double quotes.
_NOT_PORTABLE = re.compile(r'[\\$`"]')


class _Service(dict[str, Variable]):
    """The attributes of a service of xinetd."""

    def __missing__(self, name: str) -> Variable:
        return Variable(name, "")


def migrate(
    path: str | None,
    output: str | None,
    password_file: str,
    xinetd: str = "/etc/xinetd.d",
    configuration_files: Sequence[str] = script.CONFIGURATION_FILES,
) -> int:
    """Write the env file and the password file; return the exit status. Raises `SettingsError`."""
    to_check: list[str] = []
    try:
        service = _find_service(path, xinetd)
        values = _variables(service, configuration_files, to_check)
        if not _command(service) and all(
            value.where == script.BY_DEFAULT for value in values.values()
        ):
            complain(
                "found nothing that runs clustercheck, and wrote no file; name it: clustercheckd migrate PATH"
            )
            return FAILED
        settings = [*_database_and_policy(values.values()), *_listening(service, to_check)]
        settings_of(settings).require_login()
        to_check += _lines_to_check(service, values, (DISABLED_FILE, *configuration_files))
        _write(settings, values["MYSQL_PASSWORD"], to_check, output, Path(password_file).absolute())
    except OSError as fault:
        raise SettingsError(f"{fault.filename}: {fault.strerror}") from None
    for line in to_check:
        complain(f"check: {one_line(line)}")
    return DONE


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _find_service(named: str | None, xinetd: str) -> _Service:
    """Return the service that runs the script; one without attributes if there is none."""
    usual = [
        path
        for path in sorted(Path(xinetd).glob("*"))
        if path.is_file() and not _IGNORED.search(path.name)
    ]
    services = [
        service
        for path in ([Path(named)] if named else usual)
        for service in _services(path)
        if _command(service) and (named or service["disable"].value != "yes")
    ]
    if len(services) > 1:
        lines = [f"{service['server'].where}: runs clustercheck" for service in services]
        raise SettingsError(*lines, "an env file replaces one of these: clustercheckd migrate PATH")
    if named and not services:
        raise SettingsError(f"{named} has no service of xinetd that runs clustercheck")
    return services[0] if services else _Service()


def _services(path: Path) -> list[_Service]:
    services: list[_Service] = []
    section = _Service()
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if begin := _SECTION.match(line):
            section = _Service()
            if begin[1] == "service":
                services.append(section)
        elif attribute := _ATTRIBUTE.match(line):
            name, plus, value = attribute.groups()
            if plus and name in section:
                value = f"{section[name].value} {value}"
            section[name] = Variable(name, value, f"{path}, line {number} ({name})")
    return services


def _command(service: _Service) -> list[str]:
    """Return the script and its arguments, without a wrapper; empty if the service runs something
    else.
    """
    words = [service["server"].value, *service["server_args"].value.split()]
    return list(
        itertools.dropwhile(lambda word: not PurePath(word).name.startswith(_SCRIPTS), words)
    )


def _variables(
    service: _Service, configuration_files: Sequence[str], to_check: list[str]
) -> dict[str, Variable]:
    """Return the script's variables: from xinetd's env, its files, its arguments, and its
    defaults.
    """
    env, server_args = service["env"], service["server_args"]
    words = (word.partition("=") for word in env.value.split())
    variables = [Variable(name, value, env.where) for name, _, value in words]
    for path in configuration_files:
        variables += script.assignments(path, to_check)
    variables += script.positionals(_command(service)[1:], server_args.where)
    effective = script.effective(variables)
    for variable in variables:
        used = effective.get(variable.name, variable)
        if variable.value not in ("", used.value):
            to_check.append(
                f"{variable.where}: {used.name} has another value in {used.where}, which is used here"
            )
    return effective


def _database_and_policy(values: Iterable[Variable]) -> Iterator[Variable]:
    for variable in values:
        if variable.name.startswith("AVAILABLE_") and variable.value not in ("0", "1"):
            # The script compares numbers: "yes" is 0 for it, and 1 for the service.
            raise SettingsError(f"{variable.called} must be 0 or 1")
        # The script ignores an option file that it cannot read.
        unread = variable.name == "DEFAULTS_EXTRA_FILE" and not os.access(variable.value, os.R_OK)
        # The service writes no log file, and the password goes to a file of its own.
        if variable.value and variable.name not in ("ERR_FILE", "MYSQL_PASSWORD") and not unread:
            yield variable


def _listening(service: _Service, to_check: list[str]) -> Iterator[Variable]:
    for attribute, setting in _LISTENING.items():
        if attribute in service:
            yield Variable(setting, service[attribute].value, service[attribute].where)
    if "port" not in service:
        to_check.append(
            "found no port: write CLUSTERCHECK_PORT, and CLUSTERCHECK_ALLOW_FROM if it is missing, by hand"
        )
    if only_from := service.get("only_from"):
        networks = _networks(only_from.value)
        if networks:
            yield Variable("CLUSTERCHECK_ALLOW_FROM", " ".join(map(str, networks)), only_from.where)
            if not {"interface", "bind"} & set(service) and not any(
                _LOOPBACK in network for network in networks
            ):
                to_check.append(
                    f"{only_from.where}: status and drain on this host need {_LOOPBACK} in it too"
                )
        else:
            allowed = f"{only_from.where}: {only_from.value or 'nobody'}"
            to_check.append(
                f"{allowed}: everybody may connect until you write CLUSTERCHECK_ALLOW_FROM by hand"
            )
    yield Variable(
        "CLUSTERCHECK_ANY_PATH",
        "1",
        "the script answers on every path; remove it if all checks ask for /",
    )


def _networks(only_from: str) -> list[IPv4Network | IPv6Network]:
    """Return all networks, or none: an incomplete list would refuse a load balancer, and so remove
    a healthy node.
    """
    # In xinetd, zeros at the end match any number.
    if re.search(r"\.0(\s|$)", only_from):
        return []
    try:
        return [
            ip_network(word, strict=False)
            for word in only_from.replace("localhost", "127.0.0.1 ::1").split()
        ]
    except ValueError:
        return []


def _lines_to_check(
    service: _Service, values: Mapping[str, Variable], known_paths: Sequence[str]
) -> Iterator[str]:
    """Yield the script's lines that set a variable, but not those that migrate has followed."""
    path, *arguments = _command(service) or [""]
    try:
        text = _text_of(Path(path)) if path else ""
    except OSError as fault:
        yield f"{path}: {fault.strerror}: it may set variables itself"
        return
    arguments_at = service["server_args"].where
    if arguments and not _ARGUMENT.search(_NOT_CODE.sub("", text)):
        yield f"{arguments_at}: the script may ignore these arguments, which are used here"
    for known in known_paths:
        text = text.replace(known, "")
    for number, line in enumerate(text.splitlines(), 1):
        if _is_followed(line, values, arguments_at):
            continue
        if not line.lstrip().startswith("#") and _TO_CHECK.search(line):
            hidden = _MAYBE_SECRET.search(line)
            yield f"{path}, line {number}: {_HIDDEN if hidden else line.strip()}"


def _is_followed(line: str, values: Mapping[str, Variable], arguments_at: str) -> bool:
    """Return whether a line of the public script takes a variable from where migrate took it."""
    own = _OWN_DEFAULT.fullmatch(line)
    if own is None or script.DEFAULTS.get(own["name"]) != own["default"]:
        return False
    is_argument = own["source"] == _POSITIONS[own["name"]]
    if values[own["name"]].where == script.BY_DEFAULT:
        return is_argument or own["source"] == own["name"]
    return is_argument == (values[own["name"]].where == arguments_at)


def _write(
    settings: list[Variable],
    password: Variable,
    to_check: list[str],
    output: str | None,
    password_file: Path,
) -> None:
    """Write the env file, and the password's if there is none. Without an output, only print."""
    new_password = ""
    if password.value:
        settings.append(Variable("MYSQL_PASSWORD_FILE", str(password_file), password.where))
        if not password_file.exists():
            new_password = f"{password.value}\n"
        elif _text_of(password_file).removesuffix("\n") != password.value:
            to_check.append(
                f"{password_file} exists and stays as it is: it must contain the password"
            )
    if new_password and not output:
        to_check.append(f"{password_file} is written only with --output")
    text = _env_file(settings, to_check)
    if output:
        if new_password:
            _create(password_file, new_password)
        _replace(Path(output).resolve(), text)
    elif not say(text.removesuffix("\n")):
        raise SettingsError("the env file is incomplete")


def _env_file(settings: Iterable[Variable], to_check: Iterable[str]) -> str:
    lines = [f"# Made by clustercheckd {__version__} migrate."]
    for variable in settings:
        if not variable.value.isprintable() or _NOT_PORTABLE.search(variable.value):
            raise SettingsError(
                f"{variable.called} cannot be written to an env file: set it by hand"
            )
        lines += ["", f"# {one_line(variable.where)}", f'{variable.name}="{variable.value}"']
    lines += ["", "# Check these:", *(f"#   {one_line(line)}" for line in to_check)]
    return "".join(f"{line}\n" for line in lines)


def _replace(output: Path, text: str) -> None:
    """Write the env file. Keep the one that was there."""
    if output.exists():
        if not output.is_file():
            raise SettingsError(f"{output} is not a regular file")
        if _text_of(output) == text:
            complain(f"{output} has these settings already")
            return
        kept = output.with_name(f"{output.name}.old")
        if kept.exists():
            raise SettingsError(f"{output} has changed, and {kept} exists: move one of them away")
        output.rename(kept)
        complain(f"kept the file that was there as {kept}")
    _create(output, text)


def _create(path: Path, text: str) -> None:
    """Write a new file, whole or not at all, for its owner and the service's group."""
    file = path.open("x", encoding="utf-8", errors="surrogateescape")
    try:
        with file:
            os.fchmod(file.fileno(), _MODE)
            with contextlib.suppress(LookupError, PermissionError):
                shutil.chown(path, group=_GROUP)
            file.write(text)
    except OSError as fault:
        path.unlink()
        raise SettingsError(f"{path}: {fault.strerror}") from None
    complain(f"wrote {path}")
