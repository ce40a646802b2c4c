"""Finds the script's configuration in the usual places, and recognises the kind of each file that is named."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from app.commands.migration.found import Given, Runner, is_script
from app.commands.migration.systemd import kolla_runner, service_runner, systemd_runners
from app.commands.migration.xinetd import is_xinetd, xinetd_runners
from app.commands.script import CONFIGURATION_FILES, EVERY_NAME, assignments

_SCRIPT_PATH = "/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin"


@dataclass(frozen=True, slots=True)
class Places:
    """The usual places. client_files: the option files that the mysql client reads by default."""

    xinetd_conf: Path = Path("/etc/xinetd.conf")
    xinetd_directory: Path = Path("/etc/xinetd.d")
    unit_directories: tuple[Path, ...] = (
        Path("/etc/systemd/system"),
        Path("/run/systemd/system"),
        Path("/usr/local/lib/systemd/system"),
        Path("/usr/lib/systemd/system"),
        Path("/lib/systemd/system"),
    )
    kolla: Path = Path("/etc/kolla/mariadb-clustercheck/config.json")
    configuration_files: tuple[str, ...] = CONFIGURATION_FILES
    client_files: tuple[str, ...] = ("/etc/my.cnf", "/etc/mysql/my.cnf")


@dataclass(slots=True)
class Findings:
    """What was found. environ: variables from files of NAME=value lines."""

    runners: list[Runner] = field(default_factory=list)
    environ: dict[str, Given] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def look_around(places: Places) -> Findings:
    """Return what is in the usual places. Raises OSError."""
    findings = Findings()
    files = [places.xinetd_conf, *_xinetd_files(places.xinetd_directory)]
    findings.runners += xinetd_runners([path for path in files if path.is_file()])
    directories = _distinct(places.unit_directories)
    sockets = _units(directories, "*.socket")
    findings.runners += systemd_runners(sockets, directories, also_off=False)
    for path in _units(directories, "*.service"):
        findings.runners += _listed(service_runner(path, directories))
    if places.kolla.is_file():
        findings.runners += _listed(kolla_runner(places.kolla))
    files_of_script = [path for path in places.configuration_files if Path(path).is_file()]
    if not findings.runners and files_of_script:
        # There is only such a file: what runs the script is none of the above.
        findings.runners.append(Runner(" and ".join(files_of_script)))
        for file in files_of_script:
            _take_variables(findings, file)
    return findings


def look_at(paths: list[Path], places: Places) -> Findings:
    """Return what is in these files and directories. Raises OSError, and ValueError for a broken config.json."""
    findings = Findings()
    files = [file for path in paths for file in (_xinetd_files(path) if path.is_dir() else [path])]
    findings.runners += xinetd_runners([path for path in files if _is_of_xinetd(path)])
    for path in files:
        if path.suffix == ".socket":
            findings.runners += systemd_runners([path], list(places.unit_directories), also_off=True)
        elif path.suffix == ".service":
            findings.runners += _listed(service_runner(path, list(places.unit_directories)))
        elif path.suffix == ".json":
            findings.runners += _listed(kolla_runner(path))
        elif is_script(str(path)) and path.read_bytes()[:2] == b"#!":
            findings.runners.append(Runner(f"the script {path}", program=str(path), arguments_where=str(path)))
        elif not _is_of_xinetd(path):
            _take_variables(findings, str(path))
    if not findings.runners and findings.environ:
        findings.runners.append(Runner(" and ".join(map(str, files))))
    return findings


def script_of(runner: Runner) -> Path | None:
    """Return the path of the script; None if it is unknown."""
    if not runner.program:
        return None
    return Path(shutil.which(runner.program, path=_SCRIPT_PATH) or runner.program)


def _listed(runner: Runner | None) -> list[Runner]:
    return [] if runner is None else [runner]


def _is_of_xinetd(path: Path) -> bool:
    return path.suffix not in (".socket", ".service", ".json") and is_xinetd(path)


def _xinetd_files(directory: Path) -> list[Path]:
    # xinetd's includedir ignores names that contain a dot or end with a tilde.
    found = directory.iterdir() if directory.is_dir() else []
    return sorted(path for path in found if path.is_file() and "." not in path.name and not path.name.endswith("~"))


def _distinct(directories: tuple[Path, ...]) -> list[Path]:
    """Return each directory once: on most systems, /lib is a link to /usr/lib."""
    return list({path.resolve(): path for path in reversed(directories) if path.is_dir()}.values())[::-1]


def _units(directories: list[Path], pattern: str) -> list[Path]:
    """Return each unit once, from the directory that takes precedence."""
    found = {path.name: path for directory in reversed(directories) for path in directory.glob(pattern)}
    return [found[name] for name in sorted(found) if found[name].is_file()]


def _take_variables(findings: Findings, path: str) -> None:
    for number, name, value in assignments(path, EVERY_NAME, findings.remarks):
        findings.environ[name] = Given(value, f"{path}, line {number}")
