"""`clustercheckd migrate`: turns xinetd's service and the script's variables into an env file for clustercheckd.

It does not evaluate the script. It lists the lines in which the script sets a variable itself, to be checked by hand.
"""

import contextlib
import grp
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path, PurePath

from app import __version__
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, print_line
from app.commands.parser import MIGRATE, Parser
from app.commands.script import CONFIGURATION_FILES, VARIABLES, Given, assignments, effective, positionals
from app.node_state import one_line
from app.settings import settings_of
from app.settings_error import SettingsError
from app.switches import DISABLED_FILE
from app.variables import Variable

_ABOUT = (
    "Print an env file that makes clustercheckd do what the clustercheck script does on this host. The password goes"
    " to a file of its own. Lines to check are in comments and on standard error"
)
_PASSWORD_FILE = "/etc/clustercheckd/password"  # noqa: S105 (a path)
_GROUP, _MODE = "clustercheck", 0o640

_XINETD = ("/etc/xinetd.conf", "/etc/xinetd.d")
_SCRIPTS = ("clustercheck", "mysqlchk")
_SECTION = re.compile(r"(?m)^[ \t]*(defaults|service)\b[^=\n]*$")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*(\+?=)\s*(.*?)\s*$")
_LISTENING = {"interface": "CLUSTERCHECK_HOST", "bind": "CLUSTERCHECK_HOST", "port": "CLUSTERCHECK_PORT"}

_NAMES = "|".join(VARIABLES)
# Every form that sets a variable (declare, read, printf -v ...), another file to source, another disabled file.
_TO_CHECK = re.compile(
    rf"(?<![\w$])(?<!\$\{{)(?:{_NAMES})\b|\$\{{(?:{_NAMES}):?="
    r"|(?:^|[;&|({]|\b(?:then|do|else)\b)\s*(?:\.|source)\s+[\"']?[\w$/~.]"
    r"|/\S*disabled\b"
)
_MAYBE_SECRET = re.compile(r"(?i)pass|pw|secret|-p")
_PLAIN = re.compile(r"[\w./:@%+,\[\]*-]+")
# systemd and clustercheckd read these differently.
_NOT_PORTABLE = re.compile(r"[\\$`]")

_Service = dict[str, Given]
"""The attributes of a service of xinetd."""


def command_parser() -> Parser:
    """Return the parser of the arguments after `clustercheckd migrate`."""
    parser = Parser(MIGRATE, _ABOUT, " [PATH ...]")
    add, usual = parser.add_argument, "what is in " + " and ".join(_XINETD)
    add("paths", nargs="*", type=Path, metavar="PATH", help=f"xinetd service, or NAME=value file (default: {usual})")
    add("--output", metavar="PATH", help="env file to write (default: standard output)")
    about_password = "file to write the password to (default: %(default)s); never overwritten"  # noqa: S105
    add("--password-file", metavar="PATH", default=_PASSWORD_FILE, help=about_password)
    return parser


def migrate(
    arguments: Sequence[str],
    xinetd: Sequence[str] = _XINETD,
    configuration_files: Sequence[str] = CONFIGURATION_FILES,
) -> int:
    """Write the env file and the password file; return the exit status. Raises `SettingsError`."""
    typed = command_parser().parse(arguments)
    to_check: list[str] = []
    try:
        service, given = _found(typed.paths, xinetd, configuration_files, to_check)
        if service or given:
            if service:
                to_check += _lines_to_check(_command(service)[0], (DISABLED_FILE, *configuration_files))
            output, password_file = typed.output and Path(typed.output).resolve(), Path(typed.password_file).absolute()
            _write(service, effective(given), to_check, output, password_file)
    except OSError as fault:
        raise SettingsError(f"{fault.filename}: {fault.strerror}") from None
    for line in to_check:
        complain(f"check: {one_line(line)}")
    if service or given:
        return DONE
    complain("found nothing that runs clustercheck, and wrote no file; name it: clustercheckd migrate PATH")
    return FAILED


def _found(
    named: list[Path], xinetd: Sequence[str], configuration_files: Sequence[str], to_check: list[str]
) -> tuple[_Service, list[Given]]:
    """Return the service that runs the script, and the variables, of which a later one takes precedence."""
    files = list(_files(named or (path for path in map(Path, xinetd) if path.exists())))
    services = [service for path in files for service in _services(path) if _command(service)]
    services = [service for service in services if named or service["disable"].value != "yes"]
    if len(services) > 1:
        lines = [f"{service['server'].where}: runs clustercheck" for service in services]
        raise SettingsError(*lines, "an env file replaces one of these: clustercheckd migrate PATH")
    of_script = [path for path in map(Path, configuration_files) if path.exists()]
    of_variables = [path for path in files if named and not _SECTION.search(_text_of(path))]
    for path in of_variables:
        if _text_of(path).startswith("#!"):
            # Read as NAME=value lines, MYSQL_PASSWORD="${2-...}" would be the password.
            raise SettingsError(
                f"{path} is a script: name the xinetd service that runs it, or write the env file by hand"
            )
    given = [given for path in (*of_script, *of_variables) for given in assignments(path, to_check)]
    if given and not services:
        to_check.append("found no service of xinetd: write CLUSTERCHECK_PORT and CLUSTERCHECK_ALLOW_FROM by hand")
    if not services:
        return {}, given
    service = services[0]
    words = (word.partition("=") for word in service["env"].value.split())
    in_env = [Given(name, value, service["env"].where) for name, _, value in words if name in VARIABLES]
    given = [*in_env, *given, *positionals(_command(service)[1:], service["server_args"].where)]
    for before, after in itertools.combinations(given, 2):
        if before.name == after.name and before.value != after.value:
            to_check.append(f"{before.where}: {before.name} has another value in {after.where}, which is used here")
    return service, given


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield these files, and those that xinetd reads in these directories."""
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.iterdir()) if not re.search(r"\.|~$", file.name))
        else:
            yield path


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _services(path: Path) -> list[_Service]:
    services: list[_Service] = []
    section: _Service = {}
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if begin := _SECTION.match(line):
            absent = Given("", "", str(path))
            section = dict.fromkeys(("server", "server_args", "env", "flags", "disable"), absent)
            if begin[1] == "service":
                services.append(section)
        elif attribute := _ATTRIBUTE.match(line):
            name, operator, value = attribute.groups()
            if operator == "+=" and name in section:
                value = f"{section[name].value} {value}"
            section[name] = Given(name, value, f"{path}, line {number} ({name})")
    return services


def _command(service: _Service) -> list[str]:
    """Return the script and its arguments, without a wrapper; empty if the service runs something else."""
    words = [service["server"].value, *service["server_args"].value.split()]
    if "NAMEINARGS" in service["flags"].value.split() and _is_script(words[0]):
        del words[1:2]
    return list(itertools.dropwhile(lambda word: not _is_script(word), words))


def _is_script(path: str) -> bool:
    return PurePath(path).name.startswith(_SCRIPTS)


def _database_and_policy(values: Mapping[str, Given]) -> Iterator[Given]:
    for name, given in values.items():
        if name.startswith("AVAILABLE_") and given.value not in ("0", "1"):
            # The script compares numbers: "yes" is 0 for it, and 1 for the service.
            raise SettingsError(f"{given.where}: {name} must be 0 or 1")
        # The script ignores an option file that it cannot read. The service writes no log file.
        if name != "ERR_FILE" and (name != "DEFAULTS_EXTRA_FILE" or os.access(given.value, os.R_OK)) and given.value:
            yield given


def _listening(service: _Service, to_check: list[str]) -> Iterator[Given]:
    for name, setting in _LISTENING.items():
        if name in service:
            yield Given(setting, service[name].value, service[name].where)
    if "port" not in service:
        to_check.append("xinetd takes the port from /etc/services: write CLUSTERCHECK_PORT by hand")
    if "only_from" in service:
        only_from = service["only_from"]
        networks = _networks(only_from.value)
        if networks:
            yield Given("CLUSTERCHECK_ALLOW_FROM", networks, only_from.where)
        else:
            # An incomplete list would refuse a load balancer, and so remove a healthy node.
            allowed = f"{only_from.where}: {only_from.value or 'nobody'}"
            to_check.append(f"{allowed}: everybody may connect until you write CLUSTERCHECK_ALLOW_FROM by hand")
    yield Given("CLUSTERCHECK_ANY_PATH", "1", "the script answers on every path; remove this if all checks request /")


def _networks(only_from: str) -> str:
    """Return the networks; empty if a word is a name, or has zeros at the end, which match any number in xinetd."""
    networks = []
    for word in only_from.replace("localhost", "127.0.0.1 ::1").split():
        try:
            networks.append(str(ip_network(word, strict=False)))
        except ValueError:
            return ""
        if "/" not in word and word.endswith(".0"):
            return ""
    return " ".join(networks)


def _refuse_what_the_service_refuses(given: Sequence[Given]) -> None:
    """Raise `SettingsError` with the file and line of each value that the service would refuse."""
    variables = [Variable(one.name, one.value, f"{one.where}: ") for one in given]
    settings = settings_of([variables])
    try:
        settings.require_login()
    except SettingsError as fault:
        where = next((one.where for one in variables if re.match(rf"{one.name}\b", str(fault))), "")
        raise SettingsError(f"{where}{fault}") from None


def _lines_to_check(script: str, known_paths: Sequence[str]) -> Iterator[str]:
    try:
        text = _text_of(Path(script))
    except OSError as fault:
        yield f"{script}: {fault.strerror}: it may set variables itself"
        return
    for path in known_paths:
        text = text.replace(path, "")
    for number, line in enumerate(text.splitlines(), 1):
        if _TO_CHECK.search(line) and not line.lstrip().startswith("#"):
            shown = "not shown, because it may contain a password" if _MAYBE_SECRET.search(line) else line.strip()
            yield f"{script}, line {number}: {shown}"


def _text(settings: Iterable[Given], to_check: Iterable[str]) -> str:
    lines = [f"# Made by clustercheckd {__version__} migrate."]
    for given in settings:
        quote = "" if _PLAIN.fullmatch(given.value) else "'" if '"' in given.value else '"'
        if not given.value.isprintable() or _NOT_PORTABLE.search(given.value) or (quote and quote in given.value):
            raise SettingsError(f"{given.where}: {given.name} cannot be written to an env file: set it by hand")
        lines += ["", f"# {one_line(given.where)}", f"{given.name}={quote}{given.value}{quote}"]
    return "\n".join([*lines, "", "# Check these:", *(f"#   {one_line(line)}" for line in to_check)])


def _write(
    service: _Service, values: dict[str, Given], to_check: list[str], output: Path | None, password_file: Path
) -> None:
    """Write both files whole, or none. Raises OSError and `SettingsError`."""
    password = values.pop("MYSQL_PASSWORD")
    settings = [*_database_and_policy(values), *(_listening(service, to_check) if service else ())]
    _refuse_what_the_service_refuses(settings)
    if password.value:
        settings.append(Given("MYSQL_PASSWORD_FILE", str(password_file), password.where))
        if password_file.exists():
            to_check.append(f"{password_file} exists and stays as it is: it must contain the password")
    text = _text(settings, to_check)
    with contextlib.ExitStack() as temporary:
        env_file = _staged(output, f"{text}\n", temporary) if output else None
        if password.value and not password_file.exists():
            os.link(_staged(password_file, f"{password.value}\n", temporary), password_file)
            complain(f"wrote the password to {password_file}")
        if output and env_file:
            env_file.replace(output)
            complain(f"wrote {output}")
        elif fault := print_line(text):
            raise SettingsError(f"standard output: {fault.strerror}: the env file is incomplete")


def _staged(path: Path, text: str, temporary: contextlib.ExitStack) -> Path:
    """Write a new file beside the path, to replace it or be linked to it; remove it at the end."""
    if path.exists() and not path.is_file():
        raise SettingsError(f"{path} is not a regular file")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary.callback(Path(name).unlink, missing_ok=True)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(descriptor, _MODE)
            with contextlib.suppress(KeyError, PermissionError):
                os.fchown(descriptor, -1, grp.getgrnam(_GROUP).gr_gid)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, str(path)) from None
    return Path(name)
