"""`clustercheckd migrate`: print the env file that does what the clustercheck script does on this host today."""

import contextlib
import dataclasses
import grp
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from app import __version__
from app.commands.migration.evaluate import evaluate
from app.commands.migration.found import Given, Runner
from app.commands.migration.places import Places, look_around, look_at, script_of
from app.commands.migration.plan import Plan, Setting, plan_for
from app.commands.parser import MIGRATE, Parser
from app.commands.standard_streams import complain, print_line
from app.database.settings_error import DatabaseSettingsError
from app.settings import Settings

DONE, NOTHING_FOUND, MISUSED = 0, 1, 2
"""The exit codes."""

_ABOUT = (
    "Print an env file that does what the clustercheck script does on this host today. Each line names where it comes"
    " from, and what has no counterpart is listed. Nothing is changed except the password file."
)
_PASSWORD_FILE = "/etc/clustercheckd/password"  # noqa: S105 (a path)
_PASSWORD_MODE = 0o640
_GROUP = "clustercheck"


class _MigrationError(Exception):
    """What keeps an env file from being made; the message has one line for each thing."""

    def __init__(self, message: str, code: int = MISUSED) -> None:
        super().__init__(message)
        self.code = code


class _InFile(Settings):
    """The settings as an env file alone makes them, whatever the environment of this process."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave out all but the file."""
        del settings_cls, init_settings, env_settings, file_secret_settings
        return (dotenv_settings,)


def command_parser() -> Parser:
    """Return the parser of what follows `clustercheckd migrate`."""
    parser = Parser(MIGRATE, _ABOUT)
    parser.usage = f"{parser.prog} [FLAG ...] [PATH ...]"
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="xinetd services, systemd socket units, a Kolla config.json, files of NAME=value lines, the script itself"
        " (default: the usual places)",
    )
    parser.add_argument(
        "--password-file",
        default=_PASSWORD_FILE,
        metavar="PATH",
        help="where to write the password (default: %(default)s); never overwritten, never printed",
    )
    return parser


def migrate(arguments: Sequence[str], places: Places | None = None) -> int:
    """Print an env file on standard output and write the password to a file of its own; return the exit code."""
    given = command_parser().parse(arguments)
    try:
        return _migrate(given.paths, given.password_file, places or Places())
    except _MigrationError as fault:
        for line in str(fault).splitlines():
            complain(line)
        return fault.code


def _migrate(paths: list[Path], password_file: str, places: Places) -> int:
    try:
        findings = look_at(paths, places) if paths else look_around(places)
    except (OSError, ValueError) as fault:
        words = f"{fault.filename}: {fault.strerror}" if isinstance(fault, OSError) else f"broken JSON: {fault}"
        raise _MigrationError(words) from None
    runner = _chosen(findings.runners, named=bool(paths))
    environ = {**runner.environ, **findings.environ}
    evaluated = evaluate(
        script_of(runner), runner.arguments, runner.arguments_where, environ, places.configuration_files
    )
    plan = plan_for(runner, evaluated, places)
    plan.remarks += findings.remarks
    if plan.password is not None:
        where = f"{plan.password.where}; the password is in this file"
        plan.settings.append(Setting("MYSQL_PASSWORD_FILE", str(Path(password_file).absolute()), where))
    _validate(plan)
    if plan.password is not None:
        plan.remarks += _write_password(Path(password_file), plan.password)
    unprinted = print_line(_text(plan, runner))
    if unprinted is not None:
        message = f"standard output: {unprinted.strerror}: the file is not whole"
        raise _MigrationError(message)
    return DONE


def _chosen(runners: list[Runner], *, named: bool) -> Runner:
    """Give the one that runs the script today."""
    running = [runner for runner in runners if named or not runner.off]
    if not running:
        lines = [f"{runner.name} runs clustercheck, but is off: {runner.off}" for runner in runners]
        hint = "name the file that runs clustercheck, or its script, as an argument"
        message = "\n".join([*(lines or ["nothing here runs clustercheck"]), hint])
        raise _MigrationError(message, NOTHING_FOUND)
    if len(running) > 1:
        names = [f"{runner.name} runs clustercheck" for runner in running]
        raise _MigrationError("\n".join([*names, "name one of these files as an argument: one env file is for one"]))
    return running[0]


def _validate(plan: Plan) -> None:
    """Read the settings as the service will. Raises `_MigrationError` for what it would refuse."""
    sources = {setting.name: setting for setting in plan.settings}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{setting.line}\n" for setting in plan.settings)
        file.flush()
        try:
            settings = _InFile(_env_file=file.name)  # type: ignore[call-arg]
        except ValidationError as fault:
            lines = []
            for error in fault.errors():
                source = sources[str(error["loc"][0]).upper()] if error["loc"] else None
                lines.append(f"{source.where}: {source.name}: {error['msg']}" if source else error["msg"])
            raise _MigrationError("\n".join(lines)) from None
        except UnicodeError:
            message = "a value is not UTF-8: set it by hand"
            raise _MigrationError(message) from None
    for setting in plan.settings:
        read = getattr(settings, setting.name.lower())
        if isinstance(read, str) and read != setting.value:
            message = f"{setting.where}: {setting.name} cannot be written to an env file: set it by hand"
            raise _MigrationError(message)
    try:
        dataclasses.replace(settings.database(), password_file=None).login()
    except DatabaseSettingsError as fault:
        plan.remarks.append(f"clustercheckd refuses to start with this until it is mended: {fault}")


def _write_password(path: Path, password: Given) -> list[str]:
    """Write the password to a new file; return what is to be said about it."""
    secret = password.value.encode("utf-8", "surrogateescape") + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PASSWORD_MODE)
    except FileExistsError:
        if _holds(path, secret):
            return []
        message = f"{path} exists already, and is not overwritten: move it away, or name another with --password-file"
        raise _MigrationError(message) from None
    except OSError as fault:
        message = f"{path}: {fault.strerror}: name a file that can be made with --password-file"
        raise _MigrationError(message) from None
    remarks = []
    with os.fdopen(descriptor, "wb") as file:
        # The umask has had its say at the open.
        os.fchmod(descriptor, _PASSWORD_MODE)
        try:
            os.fchown(descriptor, -1, grp.getgrnam(_GROUP).gr_gid)
        except (KeyError, PermissionError):
            remarks.append(f"let the user that clustercheckd runs as read {path}")
        file.write(secret)
    complain(f"wrote the password to {path}")
    return remarks


def _holds(path: Path, secret: bytes) -> bool:
    with contextlib.suppress(OSError):
        return path.read_bytes() == secret
    return False


def _text(plan: Plan, runner: Runner) -> str:
    lines = [
        f"# Made by clustercheckd {__version__} migrate from {runner.name}.",
        "# Try it while the script is still running: clustercheckd --env-file THIS-FILE check",
    ]
    for setting in plan.settings:
        lines += ["", f"# {setting.where}", setting.line]
    if plan.remarks:
        lines += ["", "# To look at:", *(f"#   {remark}" for remark in plan.remarks)]
    if plan.uncovered:
        lines += ["", "# Without a counterpart:", *(f"#   {given.where}: {given.value}" for given in plan.uncovered)]
    return "\n".join(lines)
