"""Every block on a page is checked by its language, or has a mark above it that says why no test
checks it.

Commands are checked in code within a line as well. Statements run on a node in
tests/cluster/test_pages.py, HAProxy's lines and commands in tests/haproxy; tests/package runs whole
blocks in booted systems.
"""

import logging
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.commands.asking import Answer, Service, Status
from app.commands.parser import parse
from app.commands.status import _as_table as as_table
from app.http.health_checks import APPLICATION_PATHS, LIVENESS_PATH, VERDICT_PATHS, verdict_answer
from app.service.log import LineFormatter
from app.settings.settings import Settings
from app.settings.variables import read_env_file, unknown_names
from app.verdict.rules import Policy, Switches, Verdict, decide
from tests import real_rows
from tests.unit.manifests import ROOT
from tests.unit.pages import (
    PAGES,
    Block,
    blocks_of,
    checked_blocks,
    commands_of,
    flags_in,
    without_blocks,
)


@pytest.mark.parametrize("block", checked_blocks(), ids=str)
def test_each_block_is_checked_by_its_language(block: Block) -> None:
    CHECKS[block.language](block)


@pytest.mark.parametrize("page", PAGES)
def test_each_fence_and_each_mark_belongs_to_a_block(page: str) -> None:
    text, blocks = PAGES[page].read_text(), blocks_of(page)
    assert text.count("```") == 2 * len(blocks)
    marks = re.findall(r"^ *<!-- not checked", text, re.MULTILINE)
    assert len(marks) == len([block for block in blocks if block.why_not_checked])
    # None is made by indentation.
    assert re.findall(r"^\n {4,}\S.*", without_blocks(text), re.MULTILINE) == []


COMMANDS_WITHIN_LINES = [
    Block(page, 0, (), "console", f"$ {code}\n", None)
    for page, path in PAGES.items()
    for code in re.findall(
        r"`((?:clustercheckd|curl|make|runuser) [^`\n]+)`", without_blocks(path.read_text())
    )
]


@pytest.mark.parametrize(
    "block", COMMANDS_WITHIN_LINES, ids=lambda block: f"{block.page} {block.text[2:-1]}"
)
def test_each_command_within_a_line_exists(block: Block) -> None:
    commands_exist(block)


def commands_exist(block: Block) -> None:
    """Check that bash reads the commands, that their programs and arguments exist, and what they
    are said to print.
    """
    commands = commands_of(block)
    assert commands
    assert printed_by("bash", "-n", "-c", "\n".join(command.line for command in commands)) == ""
    for command in commands:
        for program, *arguments in command.programs():
            name = program.rpartition("/")[2]
            assert name in {*PROGRAMS, *OTHER_PROGRAMS.split()}, (
                f"{name}: add it to the programs, or mark the block"
            )
            if name in PROGRAMS:
                PROGRAMS[name](arguments)
        if command.printed:
            output_is_real(block.page, command.line, command.printed)


@cache
def printed_by(*command: str) -> str:
    """Return what a command prints, on standard error too."""
    return subprocess.check_output(
        command, cwd=ROOT, stderr=subprocess.STDOUT, text=True, timeout=30
    )


def a_command_of_clustercheckd(arguments: Sequence[str]) -> None:
    """Parse it, which raises `SettingsError` for a mistake."""
    parse([word for word in arguments if word not in ("COMMAND", "--help", "--version")])


def as_another_user(arguments: Sequence[str]) -> None:
    """Check the command that another user runs."""
    flag, user, dashes, program, *its_arguments = arguments
    assert (flag, user, dashes) == ("-u", "clustercheck", "--")
    PROGRAMS[program](its_arguments)


def within_a_time_limit(arguments: Sequence[str]) -> None:
    """Check the limit and the program."""
    seconds, program, *_ = arguments
    assert seconds.isdigit()
    assert program in OTHER_PROGRAMS.split()


def a_target_of_make(arguments: Sequence[str]) -> None:
    """Check the target, and the flags that ARGS passes on."""
    target, *variables = arguments
    assert target in re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for variable in variables:
        name, _, value = variable.partition("=")
        assert name in {"ARGS", "MAINTAINER"}
        module = {"bench": "bench", "truth": "bench.truth", "demo": "harness.demo"}
        if name == "ARGS":
            assert flags_in(value) <= flags_in(
                printed_by(sys.executable, "-m", module[target], "--help")
            )


def a_request(arguments: Sequence[str]) -> None:
    """Check flags and path; port 8404 is the stats page of haproxy.cfg.example."""
    *flags, url = arguments
    assert set(flags) <= {"-i", "-s"}
    found = re.fullmatch(r"http://[a-z0-9.]+:(?:9200|8404)(/[a-z.]*)(?:\?.*)?", url)
    assert found, url
    assert found[1] in {*VERDICT_PATHS, LIVENESS_PATH, *APPLICATION_PATHS}


def a_verb_of_systemctl(arguments: Sequence[str]) -> None:
    """Check the verb and the units."""
    verb, *rest = arguments
    assert re.search(
        rf"^  {verb}(?= |$)", printed_by("systemctl", "--no-pager", "--help"), re.MULTILINE
    ), verb
    assert set(rest) <= {
        "--now",
        "clustercheckd",
        "mariadb",
        "haproxy",
        "xinetd",
        "clustercheck.socket",
    }


def flags_of_journalctl(arguments: Sequence[str]) -> None:
    """Check the flags."""
    said = printed_by("journalctl", "--no-pager", "--help")
    assert all(f" {word}" in said for word in arguments if word.startswith("-"))


def files_of_the_checkout(arguments: Sequence[str]) -> None:
    """Check each file with a relative path: it is there, or a package as the build calls it."""
    built = {"./clustercheckd_*_amd64.deb", "./clustercheckd-*.x86_64.rpm"}
    for word in arguments:
        assert word.startswith("/") or "/" not in word or word in built or (ROOT / word).exists(), (
            word
        )


def an_image(arguments: Sequence[str]) -> None:
    """Check the arguments of a build; its settings are checked on every page."""
    declared = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for flag, value in pairwise(arguments):
        assert flag != "--build-arg" or value.partition("=")[0] in declared


PROGRAMS: dict[str, Callable[[Sequence[str]], None]] = {
    "clustercheckd": a_command_of_clustercheckd,
    "runuser": as_another_user,
    "timeout": within_a_time_limit,
    "make": a_target_of_make,
    "curl": a_request,
    "systemctl": a_verb_of_systemctl,
    "journalctl": flags_of_journalctl,
    **dict.fromkeys(("apt", "dnf", "install", "kubectl", "pip", "python"), files_of_the_checkout),
    "docker": an_image,
}
OTHER_PROGRAMS = "awk clustercheck cut df echo grep haproxy hostname ln ls mariadb python3 sed socat systemd-sysusers xargs"
"""Programs whose arguments mean nothing here; those of mariadb are run on a node."""


def output_is_real(page: str, command: str, printed: str) -> None:
    """Check that what a page says that a command prints, or a server answers, is what it does print
    or answer.

    command: the first line of the output where the page shows no command.
    """
    checks = [
        check
        for (where, beginning), check in OUTPUT.items()
        if where == page and command.startswith(beginning)
    ]
    assert len(checks) == 1, f"{page}: add the output of {command} to OUTPUT, or mark the block"
    checks[0](printed)


def test_no_check_of_an_output_is_left_over() -> None:
    for page, beginning in OUTPUT:
        assert any(beginning in block.text for block in blocks_of(page)), beginning


def exactly(expected: str) -> Callable[[str], None]:
    """Return a check that this is printed."""

    def check(printed: str) -> None:
        assert printed == expected.replace("\r\n", "\n")

    return check


SYNCED, DESYNCED = (
    decide(real_rows.parsed(rows), 0.0, Policy(1.0), Switches())
    for rows in (real_rows.SYNCED, real_rows.DESYNCED)
)


def as_curl_prints_it(verdict: Verdict) -> str:
    """Return a whole answer of 200."""
    answer = verdict_answer(verdict)
    headers = "".join(f"{name.decode()}: {value.decode()}\n" for name, value in answer.headers)
    # The last header is the guard's to add.
    return f"HTTP/1.1 200 OK\n{headers}connection: close\n\n{answer.body.decode()}"


def line_of_the_log(printed: str) -> None:
    """Check a line of the log."""
    at = datetime.fromisoformat(printed.partition(" ")[0]).timestamp()
    fields = {
        "reason": DESYNCED.reason.value,
        "was": "synced",
        "planned": True,
        "detail": DESYNCED.detail,
    }
    record = logging.makeLogRecord(
        {"levelname": "INFO", "msg": "draining", "created": at, **fields}
    )
    assert f"{LineFormatter().format(record)}\n" == printed


def table_of_status(printed: str) -> None:
    """Check the table of three services, whose answers are taken from it."""
    _, *lines = printed.splitlines()
    answers = []
    for line in lines[:3]:
        name, verdict, reason, age, state, size, queue = re.split("  +", line)
        seconds = {"d": 86400, "m": 60, "s": 1}[age[-1]] * (int(age[:-1]) + 0.5)
        since = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat()
        (detail,) = [one.split(": ", 2)[2] for one in lines[3:] if one.startswith(f"{name}: ")] or [
            ""
        ]
        node = {"wsrep_local_state_comment": state} if state != "-" else {}
        node |= (
            {"wsrep_cluster_size": int(size), "wsrep_local_recv_queue": int(queue)} if node else {}
        )
        head = {
            "available": verdict == "available",
            "draining": verdict == "draining",
            "reason": reason,
        }
        document = {**head, "since": since, "detail": detail, "node": node}
        answers.append(Answer(Service(name, name, 9200), Status.model_validate(document)))
    assert f"{as_table(answers)}\n" == printed


def files_and_folders(printed: str) -> None:
    """Check the left column of a layout: paths of the repository."""
    assert [line for line in printed.splitlines() if not (ROOT / line.split()[0]).exists()] == []


def read_by(test: str, words: str) -> Callable[[object], None]:
    """Return a check that another test reads the block, with these words; it compares it with the
    real thing.
    """

    def check(_: object) -> None:
        assert words in (ROOT / test).read_text()

    return check


OUTPUT: dict[tuple[str, str], Callable[[str], None]] = {
    ("README.md", "curl -i http://db1:9200/"): exactly(as_curl_prints_it(SYNCED)),
    ("README.md", "Percona XtraDB Cluster Node is not synced."): exactly(
        verdict_answer(DESYNCED).body.decode()
    ),
    ("CONTRIBUTING.md", "app/__main__.py"): files_and_folders,
    ("docs/haproxy.md", "Server writer/node1 is DOWN,"): read_by(
        "tests/haproxy/test_pages.py", '"text")'
    ),
    ("docs/migrating-from-clustercheck.md", "clustercheckd migrate"): read_by(
        "tests/package/test_migrated.py", "== typed.printed"
    ),
    ("docs/migrating-from-clustercheck.md", "runuser -u clustercheck"): exactly(
        f"available {SYNCED.reason}: {SYNCED.detail}\n"
    ),
    ("docs/operations.md", "clustercheckd status db1 db2 db3"): table_of_status,
    ("docs/operations.md", "2026-11-21T22:40:31Z INFO draining"): line_of_the_log,
}
"""The check of each output, by its page and the beginning of its command, or of its first line
where no command is shown."""


def systemd_accepts_it(block: Block) -> None:
    """Check it as a drop-in of the service's unit."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT TESTED: there is no systemd-analyze")
    with TemporaryDirectory() as directory:
        for name in ("clustercheckd.service", "clustercheckd-retry.timer"):
            shutil.copy(ROOT / "packaging" / name, directory)
        drop_in = Path(directory, "clustercheckd.service.d", "override.conf")
        drop_in.parent.mkdir()
        drop_in.write_text(block.text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", f"{directory}/clustercheckd.service"],
            env={
                "SYSTEMD_UNIT_PATH": f"{directory}:/usr/lib/systemd/system",
                "PATH": "/usr/bin:/bin",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    # The program and the user are there once the package is installed.
    said = [
        line
        for line in done.stderr.splitlines()
        if "clustercheckd" in line and "not executable" not in line
    ]
    assert said == []


def is_an_env_file(block: Block) -> None:
    """Check that it can be read, and has settings alone."""
    with TemporaryDirectory() as directory:
        env_file = Path(directory, "clustercheckd.env")
        env_file.write_text(block.text)
        variables, complaints = read_env_file(str(env_file))
    assert (bool(variables), complaints) == (True, [])
    assert list(unknown_names(variables, [name.upper() for name in Settings.model_fields])) == []


def is_a_variation(block: Block) -> None:
    """Check that tests/haproxy applies it to the example: it reads those of this page."""
    assert block.page == "docs/haproxy-variations.md"


CHECKS: dict[str, Callable[[Block], None]] = {
    "console": commands_exist,
    "text": lambda block: output_is_real(block.page, block.text.partition("\n")[0], block.text),
    "ini": systemd_accepts_it,
    "sh": is_an_env_file,
    "diff": is_a_variation,
    "haproxy": read_by("tests/haproxy/test_example.py", 'checked_blocks("haproxy")'),
    "sql": read_by("tests/cluster/test_pages.py", 'checked_blocks("sql")'),
}
"""The check of each language. One that nobody knows has none."""
