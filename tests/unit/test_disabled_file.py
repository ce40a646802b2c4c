"""The disabled file: only one that does not exist is none."""

import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from app.settings.disabled_file import switches_now
from app.verdict.rules import Switches
from harness.waiting import meanwhile, wait_for
from tests.conftest import needs_root


def described(path: Path) -> str:
    """Return the description of a disabled file, empty if there is none."""
    return switches_now(str(path)).disabled_file or ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a disabled file may be."""
    return tmp_path / "disabled"


def test_a_file_that_does_not_exist_is_none(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    # Below something that is no directory, there cannot be one.
    for missing in (
        path,
        path / "below",
        tmp_path / "file" / "below",
        tmp_path / "link",
    ):
        assert switches_now(str(missing)) == Switches()


def test_a_file_that_exists_is_told_with_its_time(path: Path) -> None:
    path.touch()
    os.utime(path, (0, 1_000_000_000))
    name = f"user id {os.geteuid()}" if os.geteuid() else "root"
    assert described(path) == (
        f"{path} exists, changed at 2001-09-09T01:46:40Z, owner {name}"
        " (clustercheckd undrain removes it)"
    )


@needs_root
def test_the_owner_of_a_link_is_not_that_of_its_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/etc/passwd")
    os.lchown(link, 64321, 0)
    assert ", owner user id 64321 (" in described(link)


def test_the_first_line_of_the_file_is_shown_short_and_printable(path: Path) -> None:
    path.write_bytes(b"upgrade, ticket 42 \x1b[2J\xff\nsecond line\n")
    assert ': "upgrade, ticket 42 ?[2J\\xff" (clustercheckd undrain' in described(path)
    path.write_bytes(b"x" * 5000)
    assert f': "{"x" * 120}" (clustercheckd' in described(path)


@pytest.mark.parametrize("modified_at", [-(2**40), 2**55])
def test_a_time_that_is_no_date_is_the_nearest_one(modified_at: int) -> None:
    # Disks clamp such a time; what is in memory keeps it.
    with NamedTemporaryFile(dir="/dev/shm") as file:
        os.utime(file.name, (0, modified_at))
        switches = switches_now(file.name)
    assert datetime.fromtimestamp(switches.disabled_at or 0, UTC).year in (1970, 9999)


def test_what_any_user_may_put_there_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    link, hard_link, pipe = tmp_path / "link", tmp_path / "hard", tmp_path / "pipe"
    link.symlink_to(secret)
    hard_link.hardlink_to(secret)
    os.mkfifo(pipe)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in (link, hard_link, pipe, tmp_path):
        assert described(path).startswith(f"{path} exists, changed at ")
        assert "geheim" not in described(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize("path", ["/" + "x" * 300, "/\udcff"])
def test_no_path_whatever_raises(path: str) -> None:
    switches_now(path)


def test_a_file_that_comes_and_goes_raises_nothing(path: Path) -> None:
    def come_and_go(_: object) -> None:
        path.touch()
        path.unlink()

    with meanwhile(come_and_go, 0):
        wait_for(
            "the file to be seen there and not there",
            lambda: len({described(path) == "" for _ in range(1000)}) == 2,
        )
