"""`clustercheckd migrate`: print an env file that makes clustercheckd behave as the clustercheck script does here."""

import contextlib
import dataclasses
import grp
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app import __version__
from app.commands.migration.evaluate import evaluate
from app.commands.migration.found import Given, Runner
from app.commands.migration.places import Places, look_around, look_at, script_of
from app.commands.migration.plan import Plan, Setting, plan_for
from app.commands.output import complain, print_line
from app.commands.parser import MIGRATE, Parser
from app.settings import settings_of
from app.settings_error import SettingsError
from app.variables import read_env_file

DONE, NOTHING_FOUND, MISUSED = 0, 1, 2
"""Exit statuses."""

_ABOUT = (
    "Print an env file with the settings that the clustercheck script has on this host. A comment names the source of"
    " each setting. The end lists what clustercheckd cannot do. migrate writes only the password file."
)
_PASSWORD_FILE = "/etc/clustercheckd/password"  # noqa: S105 (a path)
_PASSWORD_MODE = 0o640
_GROUP = "clustercheck"


class _MigrationError(Exception):
    """No env file can be made. The message has one line for each cause."""

    def __init__(self, message: str, code: int = MISUSED) -> None:
        super().__init__(message)
        self.code = code


def command_parser() -> Parser:
    """Return the parser of the arguments after `clustercheckd migrate`."""
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
    """Print an env file on standard output and write the password to its own file; return the exit status."""
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
        message = f"standard output: {unprinted.strerror}: the env file is incomplete"
        raise _MigrationError(message)
    return DONE


def _chosen(runners: list[Runner], *, named: bool) -> Runner:
    """Return the one that runs the script today."""
    running = [runner for runner in runners if named or not runner.off]
    if not running:
        lines = [f"{runner.name} runs clustercheck, but is off: {runner.off}" for runner in runners]
        hint = "type the path of the file that runs clustercheck, or of the script: clustercheckd migrate PATH"
        message = "\n".join([*(lines or ["found nothing that runs clustercheck"]), hint])
        raise _MigrationError(message, NOTHING_FOUND)
    if len(running) > 1:
        names = [f"{runner.name} runs clustercheck" for runner in running]
        raise _MigrationError(
            "\n".join([*names, "an env file can replace only one of them: type clustercheckd migrate PATH"])
        )
    return running[0]


def _validate(plan: Plan) -> None:
    """Read the settings as the service does. Raises `_MigrationError` for a value that the service would refuse."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{setting.line}\n" for setting in plan.settings)
        file.flush()
        variables, complaints = read_env_file(file.name)
    if complaints:
        message = "a value is not UTF-8: edit the script's configuration, or set the value by hand"
        raise _MigrationError(message)
    where = {setting.name: f"{setting.where}: " for setting in plan.settings}
    try:
        settings = settings_of([[dataclasses.replace(one, where=where[one.name]) for one in variables]])
    except SettingsError as fault:
        raise _MigrationError(str(fault)) from None
    for setting in plan.settings:
        read = getattr(settings, setting.name.lower())
        if isinstance(read, str) and read != setting.value:
            message = f"{setting.where}: {setting.name} cannot be written to an env file: set it by hand"
            raise _MigrationError(message)
    try:
        dataclasses.replace(settings.database(), password_file=None).login()
    except SettingsError as fault:
        plan.remarks.append(f"clustercheckd will not start until this is corrected: {fault}")


def _write_password(path: Path, password: Given) -> list[str]:
    """Write the password to a new file; return remarks about it."""
    secret = password.value.encode("utf-8", "surrogateescape") + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PASSWORD_MODE)
    except FileExistsError:
        if _holds(path, secret):
            return []
        message = f"{path} already exists: move it away, or type another path with --password-file"
        raise _MigrationError(message) from None
    except OSError as fault:
        message = f"{path}: {fault.strerror}: type another path with --password-file"
        raise _MigrationError(message) from None
    remarks = []
    with os.fdopen(descriptor, "wb") as file:
        # The umask may have removed bits.
        os.fchmod(descriptor, _PASSWORD_MODE)
        try:
            os.fchown(descriptor, -1, grp.getgrnam(_GROUP).gr_gid)
        except (KeyError, PermissionError):
            remarks.append(f"clustercheckd's user must be able to read {path}: change the file's group with chgrp")
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
        "# Try it while the script is still running: clustercheckd check --env-file THIS-FILE",
    ]
    for setting in plan.settings:
        lines += ["", f"# {setting.where}", setting.line]
    if plan.remarks:
        lines += ["", "# Check these:", *(f"#   {remark}" for remark in plan.remarks)]
    if plan.uncovered:
        lines += [
            "",
            "# Not supported by clustercheckd:",
            *(f"#   {given.where}: {given.value}" for given in plan.uncovered),
        ]
    return "\n".join(lines)
