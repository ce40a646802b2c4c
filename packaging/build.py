"""Builds the packages: `make package`.

    python packaging/build.py [--output DIRECTORY] [--work DIRECTORY] [--version VERSION]

Freezes the program with PyInstaller, lays out what is to be installed, and packs that as .deb, .rpm and .tar.gz, with
a bill of materials (CycloneDX). The same sources give the same bytes. Runs in the virtual environment that
packaging/setup.sh makes. --version packs what has been frozen before once more, quickly and under another version: what
the tests upgrade to.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import licences
from building import BuildError, output_of
from documents import LICENCE, documents

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "packaging"
BIN = Path(sys.executable).parent

MAINTAINER = os.environ.get("MAINTAINER") or "The clustercheckd authors <clustercheckd@localhost>"
"""Who answers for the packages: whoever builds them for others says so here, as NAME <ADDRESS>."""
SUMMARY = "Health check of a Galera node for load balancers"
DESCRIPTION = f"""{SUMMARY}
Tells HAProxy, Kubernetes and people with curl whether this node of a MariaDB
Galera or Percona XtraDB Cluster may take traffic: 200 or 503 over HTTP, and
why. It replaces xinetd and the clustercheck script. Self-contained: the
package brings its own Python."""
GLIBC = "2.36"
"""What Debian 12 has, where the package is built: the oldest that it runs with."""

LIBRARY = Path("usr/lib/clustercheckd")
DOCUMENTS = Path("usr/share/doc/clustercheckd")
SETTINGS = Path("etc/clustercheckd/clustercheckd.env")


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build the packages of clustercheckd.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where the packages go (dist)")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "package", help="where they are made")
    parser.add_argument("--version", help="pack once more what is frozen already, under this version, quickly")
    options = parser.parse_args()
    work: Path = options.work.absolute()
    version = options.version or _version()
    # Time stamps inside the files, for PyInstaller as well.
    os.environ["SOURCE_DATE_EPOCH"] = str(_epoch())
    try:
        if not options.version:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            _freeze(work)
        _lay_out(work, version)
        options.output.mkdir(parents=True, exist_ok=True)
        _pack(work, version, options.output.absolute(), quick=bool(options.version))
    except BuildError as fault:
        sys.exit(f"make package: {fault}")


def _version() -> str:
    text = (ROOT / "app" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        message = "app/__init__.py has no __version__"
        raise BuildError(message)
    return found[1]


def _epoch() -> int:
    """Return the time that all files get: that of the commit, unless SOURCE_DATE_EPOCH says otherwise."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if (ROOT / ".git").exists():
        return int(output_of("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    # Sources without their history: the archive's own time.
    return int((ROOT / "app" / "__init__.py").stat().st_mtime)


def _timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_epoch()))


def _freeze(work: Path) -> None:
    environ = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYINSTALLER_CONFIG_DIR": str(work / "cache"),
        "CLUSTERCHECKD_SOURCE": str(ROOT),
        "CLUSTERCHECKD_WORK": str(work),
    }
    log = work / "pyinstaller.log"
    folders = [f"--distpath={work}/frozen", f"--workpath={work}/analysis"]
    command = [f"{BIN}/pyinstaller", "--noconfirm", *folders, f"{HERE}/clustercheckd.spec"]
    with log.open("w") as output:
        done = subprocess.run(command, env=environ, stdout=output, stderr=output, check=False)
    if done.returncode:
        message = f"PyInstaller failed, see {log}"
        raise BuildError(message)


def _lay_out(work: Path, version: str) -> None:
    """Put everything where it will be installed, below work/tree."""
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    # In a directory called bin, or else SELinux keeps systemd from running it.
    shutil.copytree(work / "frozen" / "bin", tree / LIBRARY / "bin")
    (tree / LIBRARY / "clustercheck").symlink_to("bin/clustercheck")
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/clustercheckd").symlink_to("../lib/clustercheckd/bin/clustercheckd")
    for name in ("clustercheckd.service", "clustercheckd.socket"):
        _copy(HERE / name, tree / "usr/lib/systemd/system" / name)
    _copy(HERE / "sysusers.conf", tree / "usr/lib/sysusers.d/clustercheckd.conf")
    _copy(HERE / "first-steps.txt", tree / LIBRARY / "first-steps")
    _copy(HERE / "lintian-overrides", tree / "usr/share/lintian/overrides/clustercheckd")
    _write(tree / SETTINGS, _text("env"))
    for page in ("clustercheckd.8", "clustercheckd-clustercheck.8"):
        _write_compressed(tree / "usr/share/man/man8" / f"{page}.gz", _text(page))
    for document in documents():
        _copy(ROOT / document, tree / DOCUMENTS / document)
    (tree / DOCUMENTS / LICENCE).symlink_to("copyright")
    _write_compressed(tree / DOCUMENTS / "changelog.gz", _debian_changelog(version))
    bundled = licences.bundled(work / "frozen" / "bin" / "lib", work / "binaries.json")
    _write(work / "bill.json", licences.bill_of_materials(bundled, version, _timestamp()))
    _write(tree / DOCUMENTS / "copyright", licences.overview(bundled, (ROOT / "LICENSE").read_text()))
    for component in bundled:
        for text in component.texts:
            _copy(text, tree / DOCUMENTS / "licenses" / component.name / text.name)
    _write(work / "rpm-changelog.json", _rpm_changelog(version))
    # Before the files, one of which belongs to the group.
    _write(work / "rpm-preinstall.sh", f"systemd-sysusers - <<'END'\n{(HERE / 'sysusers.conf').read_text()}END\n")
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(_mode(path.relative_to(tree), directory=path.is_dir()))
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (_epoch(), _epoch()), follow_symlinks=False)


def _mode(path: Path, *, directory: bool) -> int:
    if path == SETTINGS:
        return 0o640
    return 0o755 if directory or path.parent == LIBRARY / "bin" else 0o644


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _write_compressed(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _text(name: str) -> str:
    return output_of(sys.executable, str(HERE / "texts.py"), name, PYTHONPATH=str(ROOT))


def _changes() -> list[str]:
    """Return the entries of CHANGELOG.md's newest section."""
    section = (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].partition("\n## ")[0]
    return [" ".join(entry.split()) for entry in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


def _debian_changelog(version: str) -> str:
    entries = [textwrap.fill(entry, 76, initial_indent="  * ", subsequent_indent="    ") for entry in _changes()]
    date = formatdate(_epoch())
    head = f"clustercheckd ({version}) stable; urgency=medium"
    return "\n".join([head, "", *entries, "", f" -- {MAINTAINER}  {date}", ""])


def _rpm_changelog(version: str) -> str:
    """Return a changelog as nfpm reads them."""
    return json.dumps(
        [
            {
                "semver": f"{version}-{_RPM_RELEASE}",
                "date": _timestamp(),
                "packager": MAINTAINER,
                "changes": [{"note": entry} for entry in _changes()],
            },
        ],
    )


def _pack(work: Path, version: str, output: Path, *, quick: bool) -> None:
    packages = {
        "deb": output / f"clustercheckd_{version}_amd64.deb",
        "rpm": output / f"clustercheckd-{version}.x86_64.rpm",
    }
    archive = output / f"clustercheckd-{version}.tar.gz"
    bill = output / f"clustercheckd-{version}.cdx.json"
    shutil.copyfile(work / "bill.json", bill)
    with ThreadPoolExecutor() as executor:
        done = [executor.submit(_nfpm, work, version, kind, path, quick) for kind, path in packages.items()]
        _archive(work / "tree", archive)
        for one in done:
            one.result()
    for path in (*packages.values(), archive, bill):
        print(f"{path.stat().st_size:>11,} bytes  {os.path.relpath(path)}")


def _nfpm(work: Path, version: str, kind: str, path: Path, quick: bool) -> None:  # noqa: FBT001 (passed on by submit)
    config = work / f"nfpm-{kind}.json"
    config.write_text(json.dumps(_configuration(work, version, kind, quick=quick), indent=1))
    output_of(f"{BIN}/nfpm", "package", f"--config={config}", f"--packager={kind}", f"--target={path}")


def _configuration(work: Path, version: str, kind: str, *, quick: bool) -> dict[str, object]:
    """Return nfpm's configuration, with every single file in it: what it does not list, it does not remove."""
    return {
        "name": "clustercheckd",
        "arch": "amd64",
        "version": version,
        "version_schema": "none",
        "section": "database",
        "priority": "optional",
        "maintainer": MAINTAINER,
        "description": DESCRIPTION,
        "license": "MIT",
        "mtime": _timestamp(),
        **({"release": _RPM_RELEASE, "changelog": str(work / "rpm-changelog.json")} if kind == "rpm" else {}),
        "contents": _contents(work / "tree", kind),
        "overrides": {
            "deb": {
                "depends": [f"libc6 (>= {GLIBC})", "zlib1g", "systemd | systemd-sysusers"],
                "scripts": {step: str(HERE / f"deb-{step}.sh") for step in _STEPS},
            },
            "rpm": {
                "depends": [f"glibc >= {GLIBC}", "libz.so.1()(64bit)", "systemd"],
                "scripts": {
                    "preinstall": str(work / "rpm-preinstall.sh"),
                    **{step: str(HERE / f"rpm-{step}.sh") for step in _STEPS},
                },
            },
        },
        # Packed well takes half a minute. Debian's own tools do not take zstd.
        "deb": {"compression": "gzip" if quick else "xz"},
        "rpm": {"summary": SUMMARY, "group": "Applications/Databases", "buildhost": "localhost", "compression": "zstd"},
    }


_RPM_RELEASE = "1"
_STEPS = ("postinstall", "preremove", "postremove")


def _contents(tree: Path, kind: str) -> list[dict[str, object]]:
    contents: list[dict[str, object]] = []
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree)
        owner = {"owner": "root", "group": "clustercheck" if name == SETTINGS else "root"}
        if path.is_symlink():
            entry = {"src": os.readlink(path), "type": "symlink", "file_info": {**owner, "mode": 0o777}}
        elif path.is_dir():
            if "clustercheckd" not in name.parts:
                continue
            # Those that are not listed would stay behind.
            entry = {"type": "dir", "file_info": {**owner, "mode": 0o755}}
        else:
            mode = path.stat().st_mode & 0o777
            entry = {"src": str(path), "file_info": {**owner, "mode": mode}}
            if name == SETTINGS:
                entry["type"] = "config|noreplace"
            elif kind == "rpm" and name.is_relative_to("usr/share"):
                entry["type"] = "doc"
        contents.append({"dst": f"/{name}", **entry})
    return contents


def _archive(tree: Path, path: Path) -> None:
    def by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=_epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for entry in sorted(tree.rglob("*")):
            archive.add(entry, f"./{entry.relative_to(tree)}", recursive=False, filter=by_root)


if __name__ == "__main__":
    main()
