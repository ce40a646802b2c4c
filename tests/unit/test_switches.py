"""The disabled file: only one that does not exist is none."""

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import pytest

from app.settings.switches import ManualSwitches
from app.verdict.rules import Switches
from harness.waiting import wait_for


def test_a_file_that_does_not_exist_is_none(tmp_path: Path) -> None:
    assert ManualSwitches(f"{tmp_path}/none")() == Switches()
    assert ManualSwitches(f"{tmp_path}/none/below")() == Switches()
    # Below something that is no directory, there cannot be one.
    (tmp_path / "file").touch()
    assert ManualSwitches(f"{tmp_path}/file/below")() == Switches()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert ManualSwitches(f"{tmp_path}/link")() == Switches()


def test_a_file_that_exists_is_told_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "disabled"
    path.touch()
    os.utime(path, (0, 1_000_000_000))
    expected = f"{path} exists, made at 2001-09-09T01:46:40Z (clustercheckd undrain removes it)"
    assert ManualSwitches(str(path))().disabled_file == expected


def test_the_first_line_of_the_file_is_shown_short_and_printable(tmp_path: Path) -> None:
    path = tmp_path / "disabled"
    path.write_bytes(b'upgrade, "ticket 42" \x1b[2J\xff\nsecond line\n')
    switches = ManualSwitches(str(path))
    assert ": \"upgrade, 'ticket 42' ?[2J?\" (clustercheckd undrain" in (
        switches().disabled_file or ""
    )
    path.write_bytes(b"x" * 5000)
    assert f': "{"x" * 120}" (clustercheckd' in (switches().disabled_file or "")


def test_the_file_is_read_only_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "disabled"
    switches = ManualSwitches(str(path))
    for words, modified_at, expected in (
        ("first", 1, "first"),
        ("other", 1, "first"),
        ("other", 2, "other"),
    ):
        path.write_text(words)
        os.utime(path, (0, modified_at))
        assert f'"{expected}"' in (switches().disabled_file or "")


@pytest.mark.parametrize(
    ("modified_at", "date"), [(-(10**9), "1970-01-01T00:00:00"), (10**12, "9999-12-31T23:59:59")]
)
def test_a_time_that_is_no_date_is_the_nearest_one(modified_at: int, date: str) -> None:
    # Disks clamp such a time; what is in memory keeps it.
    with NamedTemporaryFile(dir="/dev/shm") as file:
        os.utime(file.name, (0, modified_at))
        switches = ManualSwitches(file.name)()
    assert f" at {date}Z" in (switches.disabled_file or "")
    assert datetime.fromtimestamp(switches.disabled_at or 0, UTC).isoformat() == f"{date}+00:00"


def test_what_any_user_may_put_there_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    link, hard_link, pipe = tmp_path / "link", tmp_path / "hard", tmp_path / "pipe"
    link.symlink_to(secret)
    hard_link.hardlink_to(secret)
    os.mkfifo(pipe)
    for path in (link, hard_link, pipe, tmp_path):
        seen = ManualSwitches(str(path))().disabled_file or ""
        assert seen.startswith(f"{path} exists, made at ")
        assert "geheim" not in seen


def test_a_file_in_a_directory_that_may_not_be_searched_counts_as_there() -> None:
    # Root may search every directory, and nobody else pytest's own.
    program = (
        "import os, sys; from app.settings.switches import ManualSwitches;"
        " os.geteuid() or os.setuid(65534); print(ManualSwitches(sys.argv[1])().disabled_file)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        closed = Path(directory, "closed")
        closed.mkdir(mode=0)
        command = [sys.executable, "-c", program, f"{closed}/file"]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=20, check=True
        )
    assert (
        done.stdout
        == f"{closed}/file: Permission denied; a file that cannot be checked counts as present\n"
    )


def test_a_file_that_comes_and_goes_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "disabled"
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            path.touch()
            path.unlink()

    flickering = threading.Thread(target=come_and_go)
    flickering.start()
    try:
        switches = ManualSwitches(str(path))
        seen: set[bool] = set()

        def both_seen() -> bool:
            seen.update(switches().disabled_file is None for _ in range(1000))
            return seen == {True, False}

        wait_for("the file to be seen there and not there", both_seen, seconds=30)
    finally:
        done.set()
        flickering.join()
