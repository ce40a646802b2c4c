"""The packages as files: what is in them, and what the distributions' own checkers say."""

import json
import re
import subprocess
from hashlib import sha256
from pathlib import Path

from app import __version__
from app.commands.parser import COMMANDS
from tests.package.conftest import GLIBC_OF, ROOT, Packages, skip_where_glibc_is_newer_than_of

UNITS = "usr/lib/systemd/system"
SERVICE, TIMER = f"{UNITS}/clustercheckd.service", f"{UNITS}/clustercheckd-retry.timer"
DOCUMENTS = "usr/share/doc/clustercheckd"
MANUAL_PAGES = sorted(["clustercheckd", *(f"clustercheckd-{name}" for name in COMMANDS)])


def run(*command: str | Path) -> str:
    """Run a command to its end; return all it prints."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}"
    return done.stdout


def files_of(tree: Path) -> dict[str, Path]:
    """Return all files and links below a directory by their names there."""
    return {
        str(path.relative_to(tree)): path
        for path in tree.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_the_same_sources_give_the_same_bytes(builds: tuple[Packages, Packages]) -> None:
    first, second = (
        [sha256(path.read_bytes()).hexdigest() for path in build.all] for build in builds
    )
    assert first == second


def test_the_version_is_that_of_the_program(packages: Packages) -> None:
    assert run("dpkg-deb", "--field", packages.deb, "Version") == f"{__version__}-1\n"
    query = ("rpm", "--query", "--package", "--queryformat", "%{VERSION}-%{RELEASE}")
    assert run(*query, packages.rpm) == f"{__version__}-1"


def test_both_have_the_same_files(packages: Packages, tree: Path) -> None:
    in_deb = set(files_of(tree)) - {
        "usr/share/lintian/overrides/clustercheckd",
        f"{DOCUMENTS}/changelog.Debian.gz",
    }
    listed = run(
        "rpm",
        "--query",
        "--package",
        "--queryformat",
        "[%{FILEMODES:perms} %{FILENAMES}\n]",
        packages.rpm,
    )
    in_rpm = {
        line.split()[1].lstrip("/") for line in listed.splitlines() if not line.startswith("d")
    }
    assert in_deb == in_rpm


def test_the_file_of_settings_sets_nothing(tree: Path) -> None:
    # dpkg asks about a changed one that a new version changes too: its few lines have no reason to
    # change.
    lines = (tree / "etc/clustercheckd/clustercheckd.env").read_text().splitlines()
    assert 0 < len(lines) < 5
    assert all(line.startswith("# ") for line in lines)


def test_the_places_that_the_texts_name_are_installed(tree: Path) -> None:
    texts = [
        tree / "etc/clustercheckd/clustercheckd.env",
        tree / "usr/lib/clustercheckd/first-steps",
    ]
    texts += [tree / SERVICE, tree / TIMER, *(tree / DOCUMENTS / "docs").rglob("*.md")]
    named = {
        name
        for text in texts
        for name in re.findall(rf"/({DOCUMENTS}/[\w./-]+\w)", text.read_text())
    }
    assert f"{DOCUMENTS}/docs/reference/settings.md" in named
    assert [name for name in named if not (tree / name).exists()] == []


def test_the_names_are_clustercheckds_own(tree: Path) -> None:
    outside = sorted(name for name in files_of(tree) if "/clustercheckd/" not in f"/{name}")
    pages = [f"usr/share/man/man8/{name}.8.gz" for name in MANUAL_PAGES]
    assert outside == [
        "usr/bin/clustercheckd",
        TIMER,
        SERVICE,
        "usr/share/lintian/overrides/clustercheckd",
        *sorted(pages),
    ]


def test_each_manual_page_has_what_help_prints(tree: Path) -> None:
    for name in MANUAL_PAGES:
        page = tree / "usr/share/man/man8" / f"{name}.8.gz"
        said = run("env", "MANWIDTH=1000", "man", "--warnings=w", "--local-file", page)
        text = " ".join(said.split())
        assert "warning:" not in text
        assert f"NAME {name} - " in text
        _, _, command = name.partition("-")
        shown = run(
            tree / "usr/lib/clustercheckd/bin/clustercheckd",
            *([command] if command else []),
            "--help",
        )
        flags = re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE)
        assert flags or not command
        assert all(re.search(rf"(^|\s){flag}\b", said) for flag in flags)
        assert all(f"{other}(8)" in text for other in MANUAL_PAGES if other != name)


def test_both_commands_run_without_a_python(tree: Path) -> None:
    environ = {"PATH": "/nowhere"}
    shown = subprocess.check_output(
        [tree / "usr/bin/clustercheckd", "--version"], env=environ, text=True
    )
    assert shown == f"clustercheckd {__version__}\n"
    # Imported only when it is asked for.
    migrate = subprocess.check_output(
        [tree / "usr/bin/clustercheckd", "migrate", "--help"], env=environ, text=True
    )
    assert migrate.startswith("Usage: clustercheckd migrate ")
    drop_in = subprocess.check_output(
        [tree / "usr/lib/clustercheckd/clustercheck", "--help"], env=environ, text=True
    )
    assert drop_in.startswith("Usage: clustercheck ")


def test_it_needs_no_glibc_newer_than_debian_12s(tree: Path) -> None:
    skip_where_glibc_is_newer_than_of("bookworm")
    needed = set()
    for path in files_of(tree).values():
        if not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "--dynamic-syms", path))
            needed |= {(int(major), int(minor)) for major, minor in versions}
    assert max(needed) <= GLIBC_OF["bookworm"]


def test_the_links_of_the_pages_lead_somewhere_once_they_are_installed(tree: Path) -> None:
    documents = tree / DOCUMENTS
    pages = list(documents.rglob("*.md"))
    assert documents / "docs" / "install.md" in pages
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^()\s#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_each_bundled_part_is_named_with_its_licence(tree: Path) -> None:
    documents = tree / DOCUMENTS
    overview = (documents / "copyright").read_text()
    assert (ROOT / "LICENSE").read_text() in overview
    names = re.findall(r"^(\S+) \S+: .+$", overview.partition("SOFTWARE.\n")[2], re.MULTILINE)
    # Python and OpenSSL from Debian, the driver and the web server from the package index, and what
    # holds it together.
    assert {"aiomysql", "uvicorn", "cryptography", "pyinstaller"} <= set(names)
    assert all(
        any(name.startswith(library) for name in names) for library in ("libpython3.", "libssl3")
    )
    for name in names:
        texts = list((documents / "licenses" / name).iterdir())
        assert texts
        assert all(text.stat().st_size for text in texts)


def test_the_bill_of_materials_names_the_same_parts(packages: Packages, tree: Path) -> None:
    bill = json.loads(packages.bill_of_materials.read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == (
        "CycloneDX",
        __version__,
    )
    assert all(
        part["purl"].startswith(("pkg:pypi/", "pkg:deb/debian/")) for part in bill["components"]
    )
    overview = (tree / DOCUMENTS / "copyright").read_text()
    named = [
        f"{part['name']} {part['version']}: {part['licenses'][0]['license']['name']}"
        for part in bill["components"]
    ]
    assert overview.partition("SOFTWARE.\n")[2].split("\n") == ["", *named, ""]


def test_lintian_has_nothing_to_say(packages: Packages) -> None:
    assert run("lintian", "--allow-root", "--fail-on", "warning", packages.deb) == ""
    assert "unused-override" not in run("lintian", "--allow-root", "--display-info", packages.deb)


def test_rpmlint_has_nothing_to_say(packages: Packages) -> None:
    said = run("rpmlint", "--config", ROOT / "packaging" / "rpmlint.toml", packages.rpm)
    assert "0 errors, 0 warnings" in said


def test_the_scripts_are_sound() -> None:
    scripts = [
        path
        for folder in ("packaging", "harness", "tests/package")
        for path in (ROOT / folder).glob("*.sh")
    ]
    assert run("shellcheck", *scripts) == ""
