"""`clustercheckd migrate`: turns xinetd's service and the script's variables into an env file for clustercheckd.

It does not evaluate the script. It lists the lines in which the script sets a variable itself, to be checked by hand.
"""

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from app import __version__
from app.commands import script
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.node_state import one_line
from app.settings import settings_of
from app.settings_error import SettingsError
from app.switches import DISABLED_FILE
from app.variables import Variable

_PASSWORD_FILE = "/etc/clustercheckd/password"  # noqa: S105 (a path)
_GROUP, _MODE = "clustercheck", 0o640

_SCRIPTS = ("clustercheck", "mysqlchk")
_SECTION = re.compile(r"[ \t]*(defaults|service)\b[^=\n]*$")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*(\+?)=\s*(.*?)\s*$")
_LOOPBACK = ip_address("127.0.0.1")
_LISTENING = {"interface": "CLUSTERCHECK_HOST", "bind": "CLUSTERCHECK_HOST", "port": "CLUSTERCHECK_PORT"}

_NAMES = "|".join(script.VARIABLES)
# Every form that sets a variable (declare, read, printf -v ...), another file to source, another disabled file.
_TO_CHECK = re.compile(
    rf"(?<![\w$])(?<!\$\{{)(?:{_NAMES})\b|\$\{{(?:{_NAMES}):?="
    r"|(?:^|[;&|({]|\b(?:then|do|else)\b)\s*(?:\.|source)\s+[\"']?[\w$/~.]"
    r"|/\S*disabled\b"
)
# The forms of the public scripts: an argument or a default; in newer ones the variable as it was given, or a default.
# One of them has a dash too many: MYSQL_USERNAME="${MYSQL_USERNAME:=-clustercheckuser}".
_OWN_DEFAULT = re.compile(
    r"""(?P<name>\w+)=(?P<quote>"?)\$\{(?P<source>\w+):?(-|=-?)(?P<default>[^}]*)\}(?P=quote)\s*"""
)
_ARGUMENT = re.compile(r"\$\{?[1-9@*]|\b(shift|getopts)\b")
_MAYBE_SECRET = re.compile(r"(?i)pass|pw|secret|-p")
# A shell, systemd and clustercheckd read these differently.
_NOT_PORTABLE = re.compile(r"[\\$`]")

_Service = dict[str, Variable]
"""The attributes of a service of xinetd; empty if there is none."""


def migrate(
    path: str | None,
    output: str | None,
    password_file: str | None,
    xinetd: str = "/etc/xinetd.d",
    configuration_files: Sequence[str] = script.CONFIGURATION_FILES,
) -> int:
    """Write the env file and the password file; return the exit status. Raises `SettingsError`."""
    to_check: list[str] = []
    try:
        service, given = _found(path, xinetd, configuration_files, to_check)
        if not (service or given):
            complain("found nothing that runs clustercheck, and wrote no file; name it: clustercheckd migrate PATH")
            return FAILED
        values = script.effective(given)
        settings = [*_database_and_policy(values.values()), *_listening(service, to_check)]
        settings_of([settings]).require_login()
        if service:
            to_check += _lines_to_check(service, values, (DISABLED_FILE, *configuration_files))
        secret = Path(password_file or _PASSWORD_FILE).absolute()
        _write(settings, values["MYSQL_PASSWORD"], to_check, Path(output).resolve() if output else None, secret)
    except OSError as fault:
        raise SettingsError(f"{fault.filename}: {fault.strerror}") from None
    for line in to_check:
        complain(f"check: {one_line(line)}")
    return DONE


def _found(
    named: str | None, xinetd: str, configuration_files: Sequence[str], to_check: list[str]
) -> tuple[_Service, list[Variable]]:
    """Return the service that runs the script, and the variables, of which a later one takes precedence."""
    # xinetd ignores such names.
    usual = [path for path in sorted(Path(xinetd).glob("*")) if not re.search(r"\.|~$", path.name)]
    files = [Path(named)] if named else filter(Path.is_file, usual)
    services = [service for path in files for service in _services(path) if _command(service)]
    services = [service for service in services if named or service["disable"].value != "yes"]
    if len(services) > 1:
        lines = [f"{service['server'].where}: runs clustercheck" for service in services]
        raise SettingsError(*lines, "an env file replaces one of these: clustercheckd migrate PATH")
    given = [one for path in configuration_files for one in script.assignments(path, to_check)]
    if named and not services:
        raise SettingsError(f"{named} has no service of xinetd that runs clustercheck")
    if not services:
        return {}, given
    service = services[0]
    if "NAMEINARGS" in service["flags"].value:
        to_check.append(f"{service['flags'].where}: NAMEINARGS: the first argument was used as the user")
    words = (word.partition("=") for word in service["env"].value.split())
    in_env = [Variable(name, value, service["env"].where) for name, _, value in words]
    given = [*in_env, *given]
    path, *arguments = _command(service)
    in_arguments = script.positionals(arguments, service["server_args"].where)
    if _takes_arguments(path):
        given += in_arguments
    elif any(one.value != script.effective(given)[one.name].value for one in in_arguments):
        to_check.append(f"{service['server_args'].where}: the script ignores these arguments, and so does migrate")
    for before, after in itertools.combinations(given, 2):
        if before.name == after.name and before.value != after.value:
            to_check.append(f"{before.where}: {before.name} has another value in {after.where}, which is used here")
    return service, given


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _services(path: Path) -> list[_Service]:
    services: list[_Service] = []
    section: _Service = {}
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if begin := _SECTION.match(line):
            section = dict.fromkeys(("server", "server_args", "env", "flags", "disable"), Variable("", "", str(path)))
            if begin[1] == "service":
                services.append(section)
        elif attribute := _ATTRIBUTE.match(line):
            name, plus, value = attribute.groups()
            if plus and name in section:
                value = f"{section[name].value} {value}"
            section[name] = Variable(name, value, f"{path}, line {number} ({name})")
    return services


def _command(service: _Service) -> list[str]:
    """Return the script and its arguments, without a wrapper; empty if the service runs something else."""
    words = [service["server"].value, *service["server_args"].value.split()]
    return list(itertools.dropwhile(lambda word: not PurePath(word).name.startswith(_SCRIPTS), words))


def _takes_arguments(path: str) -> bool:
    """Return whether a script uses its arguments, except to print its help. If it cannot be read, assume that."""
    try:
        lines = _text_of(Path(path)).splitlines()
    except OSError:
        return True
    code = [re.sub(r"'[^']*'", "", line) for line in lines if "--help" not in line and not re.match(r"\s*#", line)]
    return any(map(_ARGUMENT.search, code))


def _database_and_policy(values: Iterable[Variable]) -> Iterator[Variable]:
    for given in values:
        if given.name.startswith("AVAILABLE_") and given.value not in ("0", "1"):
            # The script compares numbers: "yes" is 0 for it, and 1 for the service.
            raise SettingsError(f"{given.called} must be 0 or 1")
        # The script ignores an option file that it cannot read. The service writes no log file, and the password goes
        # to a file of its own.
        unread = given.name == "DEFAULTS_EXTRA_FILE" and not os.access(given.value, os.R_OK)
        if given.value and given.name not in ("ERR_FILE", "MYSQL_PASSWORD") and not unread:
            yield given


def _listening(service: _Service, to_check: list[str]) -> Iterator[Variable]:
    for name, setting in _LISTENING.items():
        if name in service:
            yield Variable(setting, service[name].value, service[name].where)
    if "port" not in service:
        to_check.append("found no port: write CLUSTERCHECK_PORT, and CLUSTERCHECK_ALLOW_FROM if it is missing, by hand")
    if "only_from" in service:
        only_from = service["only_from"]
        try:
            words = only_from.value.replace("localhost", f"{_LOOPBACK} ::1").split()
            networks = [ip_network(word, strict=False) for word in words]
        except ValueError:
            networks = []
        # In xinetd, zeros at the end match any number.
        if networks and not re.search(r"\.0(\s|$)", only_from.value):
            yield Variable("CLUSTERCHECK_ALLOW_FROM", " ".join(map(str, networks)), only_from.where)
            elsewhere = {"bind", "interface"} & set(service)
            if not elsewhere and not any(_LOOPBACK in network for network in networks):
                to_check.append(f"{only_from.where}: status and drain on this host need {_LOOPBACK} in it too")
        else:
            # An incomplete list would refuse a load balancer, and so remove a healthy node.
            allowed = f"{only_from.where}: {only_from.value or 'nobody'}"
            to_check.append(f"{allowed}: everybody may connect until you write CLUSTERCHECK_ALLOW_FROM by hand")
    yield Variable("CLUSTERCHECK_ANY_PATH", "1", "the script answers on every path; remove it if all checks ask for /")


def _lines_to_check(service: _Service, values: Mapping[str, Variable], known_paths: Sequence[str]) -> Iterator[str]:
    """Yield the script's lines that set a variable, but not those that set what migrate has taken over."""
    path = _command(service)[0]
    positions = {name: str(number) for number, name in enumerate(script.DEFAULTS, 1)}
    try:
        text = _text_of(Path(path))
    except OSError as fault:
        yield f"{path}: {fault.strerror}: it may set variables itself"
        return
    for known in known_paths:
        text = text.replace(known, "")
    for number, line in enumerate(text.splitlines(), 1):
        own = _OWN_DEFAULT.fullmatch(line)
        taken = values.get(own["name"]) if own else None
        if own and taken and own["source"] in (taken.name, positions.get(taken.name)):
            of_argument = taken.where == service["server_args"].where
            given_so = taken.where != script.BY_DEFAULT and of_argument == own["source"].isdecimal()
            if given_so or taken.value == own["default"]:
                continue
        if _TO_CHECK.search(line) and not line.lstrip().startswith("#"):
            shown = "not shown, because it may contain a password" if _MAYBE_SECRET.search(line) else line.strip()
            yield f"{path}, line {number}: {shown}"


def _text(settings: Iterable[Variable], to_check: Iterable[str]) -> str:
    lines = [f"# Made by clustercheckd {__version__} migrate."]
    for given in settings:
        quote = "'" if '"' in given.value else '"'
        if not given.value.isprintable() or _NOT_PORTABLE.search(given.value) or quote in given.value:
            raise SettingsError(f"{given.called} cannot be written to an env file: set it by hand")
        lines += ["", f"# {one_line(given.where)}", f"{given.name}={quote}{given.value}{quote}"]
    return "\n".join([*lines, "", "# Check these:", *(f"#   {one_line(line)}" for line in to_check)])


def _write(
    settings: list[Variable], password: Variable, to_check: list[str], output: Path | None, password_file: Path
) -> None:
    """Write both files whole, or none. Without an output, only print the env file."""
    new_password = password.value and not password_file.exists()
    if password.value:
        settings.append(Variable("MYSQL_PASSWORD_FILE", str(password_file), password.where))
        if new_password and not output:
            to_check.append(f"{password_file} is written only with --output")
        elif not new_password and _text_of(password_file).removesuffix("\n") != password.value:
            to_check.append(f"{password_file} exists and stays as it is: it must contain the password")
    text = _text(settings, to_check)
    if output is None:
        if not say(text):
            raise SettingsError("the env file is incomplete")
        return
    before = _text_of(output) if output.is_file() else None
    same = before == f"{text}\n"
    kept = output.with_name(f"{output.name}.old")
    if before is not None and not same and kept.exists():
        raise SettingsError(f"{output} has changed, and {kept} exists: move one of them away")
    with contextlib.ExitStack() as temporary:
        env_file = _staged(output, f"{text}\n", temporary)
        if new_password:
            os.link(_staged(password_file, f"{password.value}\n", temporary), password_file)
            complain(f"wrote the password to {password_file}")
        if same:
            complain(f"{output} has these settings already")
            return
        if before is not None:
            kept.hardlink_to(output)
            complain(f"kept the file that was there as {kept}")
        env_file.replace(output)
        complain(f"wrote {output}")


def _staged(path: Path, text: str, temporary: contextlib.ExitStack) -> Path:
    """Write a new file beside the path, to replace it or be linked to it; remove it at the end."""
    if path.exists() and not path.is_file():
        raise SettingsError(f"{path} is not a regular file")
    try:
        directory = temporary.enter_context(TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent))
        with Path(directory, path.name).open("w", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(file.fileno(), _MODE)
            with contextlib.suppress(LookupError, PermissionError):
                shutil.chown(file.name, group=_GROUP)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        raise SettingsError(f"{path}: {fault.strerror}") from None
    return Path(file.name)
