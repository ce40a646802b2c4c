"""The packages as files: what is in them, and what the distributions' own checkers say."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from app.commands.parser import COMMANDS
from harness.process import output_of as run
from tests.package.conftest import Packages, build
from tests.unit.manifests import ROOT

UNITS = "usr/lib/systemd/system"
SERVICE, TIMER = f"{UNITS}/clustercheckd.service", f"{UNITS}/clustercheckd-retry.timer"
DOCUMENTS = "usr/share/doc/clustercheckd"
MANUAL_PAGES = sorted(
    ["clustercheckd", *(f"clustercheckd-{name}" for name in COMMANDS)]
)


def files_of(tree: Path) -> dict[str, Path]:
    """Return all files and links below a directory by their names there."""
    return {
        str(path.relative_to(tree)): path
        for path in tree.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_the_same_sources_give_the_same_bytes(
    builds: tuple[Packages, Packages],
) -> None:
    first, second = builds
    for path, other in zip(first.all, second.all, strict=True):
        assert path.read_bytes() == other.read_bytes()


def test_the_version_is_that_of_the_program(packages: Packages, tree: Path) -> None:
    version = f"{packages.version}-1"
    shown = run(tree / "usr/bin/clustercheckd", "--version")
    assert shown == f"clustercheckd {packages.version}\n"
    assert run("dpkg-deb", "--field", packages.deb, "Version") == f"{version}\n"
    assert run("rpm", "-qp", "--queryformat", "%{EVR}", packages.rpm) == version


def test_builds_are_older_than_the_release_and_newer_than_what_they_replace() -> None:
    # Packages of many commits were called 1.0.0.
    moments = (1_800_000_000, "fff"), (1_800_000_001, "abc"), (1_900_000_000, "0-dirty")
    asked = [("1.1.0.dev0", *moment) for moment in moments] + [("1.1.0", *moments[0])]
    made = build(
        "-c", f"import build; [print(build.version_of(*one)) for one in {asked}]"
    )
    ordered = ["1.0.0", *made.split()]
    assert ordered[2:] == [
        "1.1.0~git20270115.080001.abc",
        "1.1.0~git20300317.174640.0.dirty",
        "1.1.0",
    ]
    for older, newer in pairwise(ordered):
        run("dpkg", "--compare-versions", f"{older}-1", "lt", f"{newer}-1")
        compared = f'%{{lua:print(rpm.vercmp("{older}", "{newer}"))}}'
        assert run("rpm", "--eval", compared) == "-1\n"


def test_both_have_the_same_files(packages: Packages, tree: Path) -> None:
    of_deb_alone = {
        "usr/share/lintian/overrides/clustercheckd",
        f"{DOCUMENTS}/changelog.Debian.gz",
    }
    listed = run(
        "rpm",
        "-qp",
        "--queryformat",
        "[%{FILEMODES:perms} %{FILENAMES}\n]",
        packages.rpm,
    )
    in_rpm = set(re.findall(r"^[^d]\S* /(\S+)$", listed, re.MULTILINE))
    assert set(files_of(tree)) - of_deb_alone == in_rpm


def test_the_file_of_settings_sets_nothing(tree: Path) -> None:
    # dpkg asks about a changed one that a new version changes too: its few lines have no reason to
    # change.
    lines = (tree / "etc/clustercheckd/clustercheckd.env").read_text().splitlines()
    assert 0 < len(lines) < 5
    assert all(line.startswith("# ") for line in lines)


def test_the_names_are_clustercheckds_own(tree: Path) -> None:
    outside = sorted(
        name for name in files_of(tree) if "/clustercheckd/" not in f"/{name}"
    )
    pages = [f"usr/share/man/man8/{name}.8.gz" for name in MANUAL_PAGES]
    assert outside == [
        "usr/bin/clustercheckd",
        TIMER,
        SERVICE,
        "usr/lib/tmpfiles.d/clustercheckd.conf",
        "usr/share/bash-completion/completions/clustercheckd",
        "usr/share/lintian/overrides/clustercheckd",
        *sorted(pages),
    ]


@pytest.mark.parametrize("name", MANUAL_PAGES)
def test_each_manual_page_has_what_help_prints(tree: Path, name: str) -> None:
    page = tree / "usr/share/man/man8" / f"{name}.8.gz"
    text = run("env", "MANWIDTH=1000", "man", "--warnings=w", "--local-file", page)
    assert "warning:" not in text
    assert re.search(rf"NAME\s+{name} - ", text)
    _, *command = name.split("-")
    shown = run(tree / "usr/bin/clustercheckd", *command, "--help")
    flags = set(re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE))
    assert flags <= set(re.findall(r"--[a-z-]+", text))


def test_each_bundled_part_is_named_with_its_licence(
    packages: Packages, tree: Path
) -> None:
    bill = json.loads(packages.bill_of_materials.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == packages.version
    overview = (tree / DOCUMENTS / "copyright").read_text()
    assert (ROOT / "LICENSE").read_text() in overview
    # Python and OpenSSL are from Debian, the driver and the web server from the package index.
    sources = {part["purl"].rpartition("/")[0] for part in bill["components"]}
    assert sources == {"pkg:deb/debian", "pkg:pypi"}
    for part in bill["components"]:
        licence = part["licenses"][0]["license"]["name"]
        assert f"\n{part['name']} {part['version']}: {licence}\n" in overview
        texts = list((tree / DOCUMENTS / "licenses" / part["name"]).iterdir())
        assert texts
        assert all(text.stat().st_size for text in texts)


def test_lintian_has_nothing_to_say(packages: Packages) -> None:
    assert run("lintian", "--allow-root", "--fail-on", "warning", packages.deb) == ""
    assert "unused-override" not in run(
        "lintian", "--allow-root", "--display-info", packages.deb
    )


def test_rpmlint_has_nothing_to_say(packages: Packages) -> None:
    said = run("rpmlint", "--config", ROOT / "packaging" / "rpmlint.toml", packages.rpm)
    assert "0 errors, 0 warnings" in said


def test_the_scripts_are_sound() -> None:
    # contrib has one that is sourced.
    names = ("*.sh", "packaging/clustercheck", "**/bin/clustercheck", ":!contrib")
    scripts = run("git", "ls-files", *names, cwd=ROOT).split()
    assert len(scripts) > 10
    assert run("shellcheck", *scripts, cwd=ROOT) == ""
