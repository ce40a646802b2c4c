"""Every block on a page is checked, by its language, or has a mark above it that says why no test checks it.

console: here, that bash reads it, and that its programs, words, flags, files and addresses exist; what it prints is
compared. Statements run on a node in tests/cluster/test_pages.py, HAProxy's commands in tests/haproxy/test_pages.py;
tests/package and tests/haproxy/test_planned_work.py run whole blocks.
haproxy, diff: HAProxy's own check in tests/haproxy/test_example.py; haproxy: also with clients.
sql: on a node, in tests/cluster/test_pages.py.
ini: systemd-analyze verify, here; tests/package runs them in booted systems.
yaml: compared with the manifest. sh: read as an env file. text: each by a function of its own.
"""

import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from app.commands import migrate
from app.commands.parser import MIGRATE, parse
from app.http.api import PATHS
from app.http.health_checks import LIVENESS_PATH, VERDICT_PATHS, verdict_answer
from app.log import LineFormatter
from app.settings import Settings
from app.settings_error import SettingsError
from app.variables import misspelt_names, read_env_file
from app.verdict import Policy, Switches, Verdict, decide
from tests import real_rows
from tests.unit.manifests import ROOT, StrictLoader, documents_in
from tests.unit.pages import (
    PAGES,
    Block,
    all_blocks,
    blocks_in,
    blocks_of,
    checked_blocks,
    commands_of,
    flags_in,
    output_of,
    without_blocks,
)

MOST_ARGUMENTS_OF_THE_SCRIPT = 6
SECONDS = 30


LANGUAGES = {"console", "haproxy", "diff", "sql", "ini", "yaml", "sh", "text"}


def is_checked_or_marked(block: Block) -> bool:
    """Whether tests check blocks of this language, or the page says why none checks this one."""
    return block.language in LANGUAGES or block.why_not_checked is not None


class TestEveryBlock:
    """No block gets by."""

    def test_each_has_a_language_that_is_checked_or_says_why_not(self) -> None:
        assert [str(block) for block in all_blocks() if not is_checked_or_marked(block)] == []

    def test_one_that_nobody_checks_is_found(self) -> None:
        (block,) = blocks_in("page.md", "# Page\n\n```perl\n1\n```\n")
        assert not is_checked_or_marked(block)
        (block,) = blocks_in("page.md", "# Page\n\n<!-- not checked: there is no Perl -->\n```perl\n1\n```\n")
        assert is_checked_or_marked(block)
        for command in ("clustercheckd chek", "clustercheckd check --jason", "sytemctl restart haproxy", "curl :9200"):
            (block,) = blocks_in("page.md", f"```console\n# {command}\n```\n")
            with pytest.raises((AssertionError, SettingsError)):
                test_each_command_exists(block)

    @pytest.mark.parametrize("page", PAGES)
    def test_none_is_made_by_indentation(self, page: str) -> None:
        assert re.findall(r"^\n {4,}\S.*", without_blocks(PAGES[page].read_text()), re.MULTILINE) == []

    @pytest.mark.parametrize("page", PAGES)
    def test_each_mark_stands_above_a_block(self, page: str) -> None:
        marks = len(re.findall(r"^ *<!-- not checked", PAGES[page].read_text(), re.MULTILINE))
        assert marks == len([block for block in blocks_of(page) if block.why_not_checked])

    def test_every_diff_is_one_of_the_variations_that_haproxy_checks(self) -> None:
        assert {block.page for block in checked_blocks("diff")} == {"docs/haproxy.md"}
        before, _, variations = PAGES["docs/haproxy.md"].read_text().partition("\n## Variations\n")
        assert "```diff" not in before
        assert "```diff" not in variations.partition("\n## ")[2]


class TestConsole:
    """What is typed."""

    @pytest.mark.parametrize("page", PAGES)
    def test_bash_can_read_it(self, page: str) -> None:
        lines = [
            command.line for block in blocks_of(page) if block.language == "console" for command in commands_of(block)
        ]
        done = subprocess.run(
            ["bash", "-n"], input="\n".join(lines), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", checked_blocks("console"), ids=str)
def test_each_command_exists(block: Block) -> None:
    """And its arguments fit, as far as that can be told without running it."""
    assert commands_of(block)
    for command in commands_of(block):
        for program, *arguments in command.programs():
            name = program.rpartition("/")[2]
            assert name in PROGRAMS, f"{name}: add it to PROGRAMS, or mark the block"
            PROGRAMS[name](arguments)


def a_command_of_clustercheckd(arguments: Sequence[str]) -> None:
    """Parse it, which raises `SettingsError` for a mistake."""
    typed = parse([word for word in arguments if word not in ("--help", "--version")])
    if typed.command == MIGRATE:
        migrate.command_parser().parse(typed.rest)


def a_call_of_the_drop_in(arguments: Sequence[str]) -> None:
    """Check the number of arguments."""
    assert len(arguments) <= MOST_ARGUMENTS_OF_THE_SCRIPT


def as_another_user(arguments: Sequence[str]) -> None:
    """Check the command that another user runs."""
    flag, user, dashes, program, *its_arguments = arguments
    assert (flag, user, dashes) == ("-u", "clustercheck", "--")
    PROGRAMS[program](its_arguments)


def a_target_of_make(arguments: Sequence[str]) -> None:
    """Check the target, and the flags that ARGS passes on."""
    target, *variables = arguments
    assert target in re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for variable in variables:
        name, _, value = variable.partition("=")
        assert name in {"ARGS", "MAINTAINER"}
        module = {"bench": "bench", "truth": "bench.truth", "demo": "harness.demo"}
        if name == "ARGS" and target in module:
            assert flags_in(value) <= flags_in(printed_by(sys.executable, "-m", module[target], "--help"))


def a_request(arguments: Sequence[str]) -> None:
    """Check flags and path; port 8404 is the stats page of haproxy.cfg.example."""
    *flags, url = arguments
    assert set(flags) <= {"-i", "-s"}
    found = re.fullmatch(r"http://[a-z0-9.]+:(9200|8404)(/[a-z.]*)(?:\?.*)?", url)
    assert found, url
    assert found[2] in {*VERDICT_PATHS, LIVENESS_PATH, *PATHS}


def a_verb_of_systemctl(arguments: Sequence[str]) -> None:
    """Check the verb and the units."""
    verb, *rest = arguments
    assert re.search(rf"^  {verb}(?= |$)", printed_by("systemctl", "--no-pager", "--help"), re.MULTILINE), verb
    units = {"clustercheckd", "mariadb", "haproxy", "xinetd", "clustercheck.socket"}
    assert {word for word in rest if word != "--now"} <= units


def flags_of_journalctl(arguments: Sequence[str]) -> None:
    """Check the flags."""
    said = printed_by("journalctl", "--no-pager", "--help")
    assert all(f" {word}" in said for word in arguments if word.startswith("-"))


def a_statement(arguments: Sequence[str]) -> None:
    """Check that it is one that tests/cluster/test_pages.py finds and runs."""
    assert [arguments[0], len(arguments)] == ["-e", 2]


def an_archive(arguments: Sequence[str]) -> None:
    """Check that packages are called as the build calls them."""
    built = {"./clustercheckd_*_amd64.deb", "./clustercheckd-*.x86_64.rpm"}
    assert {word for word in arguments if "/" in word} <= built


def files_that_exist(arguments: Sequence[str]) -> None:
    """Check the files of the repository that are named."""
    for flag, value in pairwise(arguments):
        if flag in {"-r", "-f", "-k"} and not value.startswith(("/", "{{")):
            assert (ROOT / value).exists(), value


def a_script(arguments: Sequence[str]) -> None:
    """Check a script of the repository."""
    printed_by(sys.executable, *arguments)


def files_to_copy(arguments: Sequence[str]) -> None:
    """Check the files of the repository that install(1) copies."""
    for word in arguments:
        assert not word.startswith("packaging/") or (ROOT / word).is_file(), word


def an_image(arguments: Sequence[str]) -> None:
    """Check the arguments of a build and the settings of a run."""
    declared = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for flag, value in pairwise(arguments):
        if flag == "--build-arg":
            assert value.partition("=")[0] in declared
        if flag == "-e":
            assert value.partition("=")[0].lower() in Settings.model_fields


def known_to_bash_alone(arguments: Sequence[str]) -> None:
    """Accept anything: a program of the operating system, whose arguments mean nothing here."""


PROGRAMS: dict[str, Callable[[Sequence[str]], None]] = {
    "clustercheckd": a_command_of_clustercheckd,
    "clustercheck": a_call_of_the_drop_in,
    "runuser": as_another_user,
    "make": a_target_of_make,
    "curl": a_request,
    "systemctl": a_verb_of_systemctl,
    "journalctl": flags_of_journalctl,
    "mariadb": a_statement,
    "apt": an_archive,
    "dnf": an_archive,
    "pip": files_that_exist,
    "python": a_script,
    "install": files_to_copy,
    "kubectl": files_that_exist,
    "docker": an_image,
    **dict.fromkeys(
        (
            "awk",
            "cut",
            "df",
            "echo",
            "grep",
            "haproxy",
            "hostname",
            "ls",
            "python3.11",
            "socat",
            "systemd-sysusers",
            "xargs",
        ),
        known_to_bash_alone,
    ),
}


@cache
def printed_by(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def outputs(block: Block) -> dict[str, str]:
    """Return what a block shows to be printed, by its command or, where none is shown, by its first line."""
    if block.why_not_checked is not None or block.language not in {"console", "text"}:
        return {}
    return {block.text.splitlines()[0]: block.text} if block.language == "text" else output_of(block)


class TestOutput:
    """What a page says that a command prints, or a server answers, is what it does print or answer."""

    @pytest.mark.parametrize("block", [block for block in all_blocks() if outputs(block)], ids=str)
    def test_it_is_what_is_printed(self, block: Block) -> None:
        for command, printed in outputs(block).items():
            checks = [
                check
                for (page, beginning), check in CHECKED_OUTPUT.items()
                if page == block.page and command.startswith(beginning)
            ]
            assert len(checks) == 1, f"{block}: add the output of {command} to CHECKED_OUTPUT, or mark the block"
            checks[0](printed)

    def test_no_check_is_left_over(self) -> None:
        shown = [(block.page, command) for block in all_blocks() for command in outputs(block)]
        for page, beginning in CHECKED_OUTPUT:
            assert any(block == page and text.startswith(beginning) for block, text in shown), beginning


SYNCED, DESYNCED = (
    decide(real_rows.parsed(rows), 0.0, Policy(1.0), Switches()) for rows in (real_rows.SYNCED, real_rows.DESYNCED)
)


def answered(verdict: Verdict) -> Callable[[str], None]:
    """Return a check of a whole answer, as curl -i prints it."""

    def check(printed: str) -> None:
        answer = verdict_answer(verdict)
        status = {200: "200 OK", 503: "503 Service Unavailable"}[answer.status]
        headers = "".join(f"{name.decode()}: {value.decode()}\n" for name, value in answer.headers)
        body = answer.body.decode().replace("\r\n", "\n")
        # The last header is the guard's to add.
        assert printed == f"HTTP/1.1 {status}\n{headers}connection: close\n\n{body}"

    return check


def body_of(verdict: Verdict) -> Callable[[str], None]:
    """Return a check of a body."""

    def check(printed: str) -> None:
        assert printed == verdict_answer(verdict).body.decode().replace("\r\n", "\n")

    return check


def logged(printed: str) -> None:
    """Check a line of the log, but for its time."""
    record = logging.makeLogRecord({"levelno": logging.INFO, "levelname": "INFO", "msg": "draining"})
    fields = {"reason": DESYNCED.reason.value, "was": "synced", "planned": True, "detail": DESYNCED.detail}
    vars(record).update(fields)
    line = LineFormatter().format(record)
    time, _, rest = printed.rstrip("\n").partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time)
    assert rest == line.partition(" ")[2]


def table_of_status(printed: str) -> None:
    """Check the table of three services, whose answers are taken from it."""
    _, *rows = (line.split() for line in printed.splitlines())
    documents = []
    for row in rows[:3]:
        verdict = " ".join(row[1:-5])
        reason, since, state, size, queue = row[-5:]
        (detail,) = [" ".join(words[2:]) for words in rows[3:] if words[0] == f"{row[0]}:"] or [""]
        shown = {"wsrep_local_state_comment": state, "wsrep_cluster_size": size, "wsrep_local_recv_queue": queue}
        node = {name: int(value) if value.isdecimal() else value for name, value in shown.items() if value != "-"}
        head = {"available": verdict == "available", "draining": verdict == "draining", "reason": reason}
        documents.append({**head, "since": since, "detail": detail, "node": node})
    with serving(documents) as addresses:
        command = [sys.executable, "-m", "app", "status", *addresses]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stderr == ""
    said = done.stdout
    for name, address in zip(("db1", "db2", "db3"), addresses, strict=True):
        said = said.replace(address, name)
    assert [line.split() for line in said.splitlines()] == [line.split() for line in printed.splitlines()]


@contextmanager
def serving(documents: Sequence[object]) -> Iterator[list[str]]:
    """Answer everything with JSON, each document at an address of its own."""

    def handler(document: object) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    servers = [HTTPServer(("127.0.0.1", 0), handler(document)) for document in documents]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    try:
        for thread in threads:
            thread.start()
        yield [f"127.0.0.1:{server.server_port}" for server in servers]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def what_migrate_says(printed: str) -> None:
    """Check what it says on standard error, for a script that differs from the packages' in its eighth line."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "clustercheck").write_text("#!/bin/bash\n" + "\n" * 6 + "AVAILABLE_WHEN_DONOR=${3:-0}\n")
        (folder / "mysqlchk").write_text(
            f"service mysqlchk\n{{\n server = {folder}/clustercheck\n server_args = somebody secret\n port = 9200\n}}\n"
        )
        files = ["--output", f"{folder}/clustercheckd.env", "--password-file", f"{folder}/password"]
        command = [sys.executable, "-m", "app", "migrate", *files, f"{folder}/mysqlchk"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True)
    shown = done.stderr.replace(f"{folder}/clustercheck,", "/usr/bin/clustercheck,")
    assert shown.replace(directory, "/etc/clustercheckd") == printed


def verdict_of_check(printed: str) -> None:
    """Check the line that `clustercheckd check` prints."""
    assert printed == f"available {SYNCED.reason}: {SYNCED.detail}\n"


def files_and_folders(printed: str) -> None:
    """Check the left column of a layout: paths of the repository."""
    for line in printed.splitlines():
        path = line.split()[0]
        assert (ROOT / path).exists(), path


def checked_in(test: str, heading: str) -> Callable[[str], None]:
    """Return a check that another test reads the block under this heading; it compares it with the real thing."""

    def check(_: str) -> None:
        assert f'"{heading}"' in (ROOT / test).read_text()

    return check


CHECKED_OUTPUT: dict[tuple[str, str], Callable[[str], None]] = {
    ("README.md", "curl -i http://db1:9200/"): answered(SYNCED),
    ("README.md", "Percona XtraDB Cluster Node is not synced."): body_of(DESYNCED),
    ("CONTRIBUTING.md", "app/__main__.py"): files_and_folders,
    ("docs/haproxy.md", "Server writer/node1 is DOWN,"): checked_in("tests/haproxy/test_pages.py", "See what it does"),
    ("docs/migrating-from-clustercheck.md", "clustercheckd migrate"): what_migrate_says,
    ("docs/migrating-from-clustercheck.md", "runuser -u clustercheck"): verdict_of_check,
    ("docs/operations.md", "clustercheckd status db1 db2 db3"): table_of_status,
    ("docs/operations.md", "2026-11-21T22:40:31Z INFO draining"): logged,
}
"""The check of each output, by its page and the beginning of its command, or of its first line where no command is
shown."""


@pytest.mark.parametrize("block", checked_blocks("ini"), ids=str)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NOT TESTED: there is no systemd-analyze")
def test_systemd_accepts_each_drop_in(block: Block, tmp_path: Path) -> None:
    unit = "clustercheckd.service"
    for name in (unit, "clustercheckd-retry.timer"):
        # The command is not there before the package is installed.
        text = (ROOT / "packaging" / name).read_text().replace("/usr/bin/clustercheckd", "/bin/true")
        (tmp_path / name).write_text(re.sub("^(User|Documentation)=.*\n", "", text, flags=re.MULTILINE))
    (tmp_path / f"{unit}.d").mkdir()
    (tmp_path / f"{unit}.d" / "override.conf").write_text(
        block.text.replace("/opt/clustercheckd/bin/clustercheckd", "/bin/true")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/usr/lib/systemd/system", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "clustercheckd" in line or str(tmp_path) in line] == []


@pytest.mark.parametrize("block", checked_blocks("yaml"), ids=str)
def test_each_line_of_yaml_is_one_of_the_sidecar(block: Block) -> None:
    """And the page about Kubernetes has all of them, without what only kustomize reads."""
    (patch,) = documents_in(ROOT / "contrib" / "kubernetes" / "sidecar.yaml")
    pod = patch["spec"]["template"]["spec"]
    del pod["containers"][0]["readinessProbe"]["$patch"]
    shown = yaml.load(block.text, Loader=StrictLoader)  # noqa: S506 (a safe loader)
    assert shown
    if block.page == "docs/kubernetes.md":
        assert shown == pod
        return
    for name, probe in shown.items():
        assert probe.items() <= pod["initContainers"][0][name].items()


@pytest.mark.parametrize("block", checked_blocks("sh"), ids=str)
def test_each_env_file_can_be_read_and_has_settings_alone(block: Block, tmp_path: Path) -> None:
    env_file = tmp_path / "clustercheckd.env"
    env_file.write_text(block.text)
    variables, complaints = read_env_file(str(env_file))
    assert (bool(variables), complaints) == (True, [])
    assert list(misspelt_names(variables, [name.upper() for name in Settings.model_fields])) == []
