"""`clustercheckd migrate`: turn xinetd's service and the script's variables into an env file.

It does not evaluate the script. Where a value is not certain, for example because the script may
set it itself, a line that begins with `# CHECK` says so in the env file, and the exit status is 3.
"""

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from app import __version__
from app.commands.exit_status import DONE, FAILED, TO_CHECK
from app.commands.output import complain, say
from app.script import inputs as script
from app.settings.disabled_file import DISABLED_FILE
from app.settings.env_file import read_env_file
from app.settings.files import SettingsError
from app.settings.settings import effective, settings_of
from app.settings.values import Variable
from app.text import one_line

_SCRIPT = re.compile(r"(.*/)?(clustercheck|mysqlchk)[^/]*$")

# Of xinetd.
_SECTION = re.compile(r"(?m)^[ \t]*(?:defaults|service)\b[^=\n]*$")
_ATTRIBUTE = re.compile(r"(?m)^[ \t]*(\w+)[ \t]*([+-]?)=[ \t]*(.*?)[ \t]*$")
_SETTINGS_OF = {
    "interface": "CLUSTERCHECK_HOST",
    "bind": "CLUSTERCHECK_HOST",
    "port": "CLUSTERCHECK_PORT",
    "only_from": "CLUSTERCHECK_ALLOW_FROM",
}
# Addresses and networks, which the service reads as xinetd does. There, zeros at the end match any
# number. An incomplete list would refuse a load balancer, and so remove a healthy node.
_ONLY_FROM = re.compile(r"(?!.*\.0(\s|$))[0-9a-fA-F.:/]+(\s+[0-9a-fA-F.:/]+)*")

_NAMES = "|".join(script.VARIABLES)
_ARGUMENTS = "|".join(script.DEFAULTS)
# Comments, and the paths that the service and migrate read too.
_HARMLESS = re.compile(
    "|".join([r"(?m)^[ \t]*#.*", DISABLED_FILE, *script.CONFIGURATION_FILES])
)
# Every form that may set a variable (declare, read, printf -v ...) or move the arguments, another
# file to source, another disabled file.
_TO_CHECK = re.compile(
    rf"(?:(?<!\$)(?<!\$\{{)|(?<=\$\{{)(?=\w+:?=))\b(?P<name>{_NAMES})\b"
    r"|(?:^|[\s;&|({])(?:\.|source)\s+[\"']?[\w$/~.]"
    r"|/\S*disabled\b"
    r"|\b(?:shift|eval|set\s+--?|printf\s+-v)(?:\s|$)"
)
# The form of the public scripts: an argument or a variable, or else a default. One of them has a
# dash too many: MYSQL_USERNAME="${MYSQL_USERNAME:=-clustercheckuser}".
_ASSIGNMENT = re.compile(rf'({_ARGUMENTS})="?\$\{{(\w+)[:=-]+([^}}]*)\}}"?\s*')
# What the script must set for its values to be certain.
_CERTAIN = (
    "MYSQL_USERNAME",
    "MYSQL_PASSWORD",
    "AVAILABLE_WHEN_DONOR",
    "AVAILABLE_WHEN_READONLY",
)
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
        env = service["env"]
        words = (word.partition("=") for word in env.value.split())
        variables = [Variable(name, value, env.where) for name, _, value in words]
        variables += script.assignments(configuration_files, to_check)
        if not service and not variables:
            complain(
                "found nothing that runs clustercheck; name it: clustercheckd migrate PATH"
            )
            return FAILED
        _, command = _words_of(service)
        arguments = script.positionals(command[1:], service["server_args"].where)
        values = script.effective(variables + arguments)
        settings = [
            *_database_and_policy(values.values(), Path(password_file)),
            *_listening(service, to_check),
        ]
        settings_of(effective(settings))
        to_check += _other_values(service, variables, arguments, values)
        _write_both(
            output,
            settings,
            to_check,
            Path(password_file),
            values["MYSQL_PASSWORD"].value,
        )
    except OSError as fault:
        raise SettingsError(f"{fault.filename or output}: {fault.strerror}") from None
    for line in to_check:
        complain(f"check: {one_line(line)}")
    return TO_CHECK if to_check else DONE


def _find_service(path: str | None, xinetd: str) -> _Service:
    """Return the service that runs the script; one without attributes if there is none."""
    if path:
        files = [Path(path)]
    else:
        # xinetd ignores some files.
        files = [
            file
            for file in sorted(Path(xinetd).glob("*[!~]"))
            if file.is_file() and "." not in file.name
        ]
    services = [service for file in files for service in _services(file)]
    if len(services) > 1 or (path and not services):
        raise SettingsError(
            f"{len(services)} enabled services run clustercheck: name a file of xinetd with one of"
            " them: clustercheckd migrate PATH"
        )
    return services[0] if services else _Service()


def _services(path: Path) -> Iterator[_Service]:
    """Yield the enabled services of a file that run the script."""
    for text in _SECTION.split(_text_of(path)):
        section = _Service()
        for name, sign, value in _ATTRIBUTE.findall(text):
            # What is taken away with -= stays, with a sign that no value may have.
            added = f"{section[name].value} {sign.strip('+')}{value}"
            section[name] = Variable(
                _SETTINGS_OF.get(name, name),
                added if sign else value,
                f"{path} ({name})",
            )
        if _words_of(section)[1] and section["disable"].value != "yes":
            yield section


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _words_of(service: _Service) -> tuple[list[str], list[str]]:
    """Return the words before the script, such as tcpd, and the script with its arguments."""
    words = f"{service['server'].value} {service['server_args'].value}".split()
    command = list(itertools.dropwhile(lambda word: not _SCRIPT.match(word), words))
    return words[: len(words) - len(command)], command


def _database_and_policy(
    values: Iterable[Variable], password_file: Path
) -> Iterator[Variable]:
    for variable in values:
        if variable.name.startswith("AVAILABLE_") and variable.value not in ("0", "1"):
            # The script compares numbers: "yes" is 0 for it, and 1 for the service.
            raise SettingsError(f"{variable.called} must be 0 or 1")
        # The script ignores an option file that it cannot read. The service writes no log file.
        is_unused = variable.name == "ERR_FILE" or (
            variable.name == "DEFAULTS_EXTRA_FILE"
            and not os.access(variable.value, os.R_OK)
        )
        if variable.value and not is_unused:
            if variable.name == "MYSQL_PASSWORD":
                place = str(password_file.absolute())
                yield Variable("MYSQL_PASSWORD_FILE", place, variable.where)
            else:
                yield variable


def _listening(service: _Service, to_check: list[str]) -> Iterator[Variable]:
    if "port" not in service:
        to_check.append(
            "found no port: write CLUSTERCHECK_PORT and CLUSTERCHECK_ALLOW_FROM"
        )
    for variable in service.values():
        is_list = variable.name == "CLUSTERCHECK_ALLOW_FROM"
        if is_list and not _ONLY_FROM.fullmatch(variable.value):
            to_check.append(
                f"{variable.called}: everybody may connect until you write it by hand"
            )
        elif variable.name in _SETTINGS_OF.values():
            yield variable
    yield Variable("CLUSTERCHECK_ANY_PATH", "1", "not needed if all checks ask for /")


def _other_values(
    service: _Service,
    variables: Iterable[Variable],
    arguments: Iterable[Variable],
    values: Mapping[str, Variable],
) -> Iterator[str]:
    """Yield each place that may give a variable another value than migrate uses."""
    for variable in variables:
        used = values.get(variable.name, variable)
        if variable.value not in ("", used.value):
            yield f"{variable.called} has another value in {used.where}, which is used"
    if not service:
        return
    before, (path, *_) = _words_of(service)
    is_wrapped = [Path(word).name for word in before] == ["tcpd"]
    if not is_wrapped and (before or "NAMEINARGS" in service["flags"].value):
        names = ", ".join(_CERTAIN)
        yield f"{service['server'].where}: starts {path} with other arguments: {names}"
    sources = {variable.name: variable.value for variable in variables}
    for position, argument in enumerate(arguments, 1):
        sources[str(position)] = argument.value
    yield from _other_lines(Path(path), sources, values)


def _other_lines(
    path: Path, sources: Mapping[str, str], values: Mapping[str, Variable]
) -> Iterator[str]:
    """Yield each line of the script that may set a variable otherwise, and each that is missing."""
    missing = dict.fromkeys(_CERTAIN)
    text = _HARMLESS.sub("", _text_of(path))
    for number, line in enumerate(text.splitlines(), 1):
        if assignment := _ASSIGNMENT.fullmatch(line):
            name, source, default = assignment.groups()
            missing.pop(name, None)
            if sources.get(source, default) == values[name].value:
                continue
        if to_check := _TO_CHECK.search(line):
            # Not the line: it may contain a password.
            yield f"{path}, line {number}: {to_check['name'] or 'another file'}"
    for name in missing:
        yield f"{path}: no line sets it as the script does: {name}"


def _write_both(
    output: str | None,
    settings: Iterable[Variable],
    to_check: list[str],
    password_file: Path,
    password: str,
) -> None:
    """Write the password file and the env file. Without an output, only print the env file."""
    if not output:
        if not say(_env_file(settings, to_check)):
            raise SettingsError("the env file is incomplete")
        return
    if Path(output).exists() and any(read_env_file(output)):
        raise SettingsError(f"{output} is more than a file of comments: move it away")
    if password and password_file.exists():
        to_check.append(
            f"{password_file} exists and stays as it is: is the password in it?"
        )
        password = ""
    env_file = _env_file(settings, to_check)
    if password:
        _write(password_file, f"{password}\n")
    _write(Path(output), f"{env_file}\n")


def _env_file(settings: Iterable[Variable], to_check: Iterable[str]) -> str:
    """Return its text. A value that is not certain says so, and not where it comes from."""
    checks = [f"# CHECK, then remove this line: {one_line(line)}" for line in to_check]
    lines = [f"# Made by clustercheckd {__version__} migrate.", *checks]
    for variable in settings:
        if not variable.value.isprintable() or _NOT_PORTABLE.search(variable.value):
            raise SettingsError(
                f"{variable.called} cannot be written to an env file: set it by hand"
            )
        where = variable.where
        if any(variable.name.removesuffix("_FILE") in line for line in checks):
            where = "NOT CERTAIN: see CHECK above"
        lines += ["", f"# {one_line(where)}", f'{variable.name}="{variable.value}"']
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    """Write a file for the service's group: whole, or not at all."""
    # Nobody else can enter this directory.
    with TemporaryDirectory(dir=path.parent) as directory:
        file = Path(directory, path.name)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        file.chmod(0o640)
        with contextlib.suppress(LookupError, PermissionError):
            shutil.chown(file, group="clustercheck")
        file.replace(path)
    complain(f"wrote {path}")
