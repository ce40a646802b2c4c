"""Each SQL statement that a page has an administrator type is one that a real node accepts."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.galera import ACCOUNT as OF_THE_HARNESS
from harness.galera import PASSWORD, Installation, Node
from harness.process import output_of
from harness.service import without_settings
from harness.waiting import wait_for
from tests.unit.pages import blocks_in, typed_on_pages

ACCOUNT = "clustercheck@localhost"


def statements() -> dict[str, str]:
    """Return the statements of all pages, each under the first place that has it."""
    found: dict[str, str] = {}
    texts = [(words[2], command.block) for command, words in typed_on_pages("mariadb")]
    texts += [(block.text, block) for block in blocks_in("sql")]
    for text, block in texts:
        for statement in text.split(";"):
            found.setdefault(statement.strip(), str(block))
    found.pop("", None)
    return {
        f"{place} {shlex.quote(statement)}": statement
        for statement, place in found.items()
    }


@pytest.fixture(scope="module")
def node(installation: Installation) -> Node:
    """Start a node that is a cluster by itself, without the account of the pages."""
    started = installation.node("of-the-pages")
    started.start_alone()
    return started


@pytest.mark.parametrize("statement", statements().values(), ids=statements().keys())
def test_a_node_accepts(node: Node, statement: str) -> None:
    node.sql(f"DROP USER IF EXISTS {ACCOUNT}")
    if statement.startswith(("ALTER USER", "GRANT")):
        node.sql(f"CREATE USER {ACCOUNT}")
    rows = node.sql(statement)
    # One has it join again.
    wait_for("the node to be ready", lambda: node.status("wsrep_ready") == "ON")
    # A SHOW of a name that does not exist is no error, and prints nothing.
    assert rows or not statement.startswith(("SHOW", "SELECT"))
    assert f" {ACCOUNT}" in statement or "USER" not in statement


def test_ps_tells_a_server_that_was_stopped_when_sql_gets_no_answer(node: Node) -> None:
    # The page's command counts the threads of every mariadbd: this asks for those of one.
    ((command, words),) = typed_on_pages("ps")
    assert words[-2:] == ["-C", "mariadbd,mysqld"], command
    of_this = [*words[:-2], "-p", str(node.process.pid)]

    def letters() -> set[str]:
        return {line[0] for line in output_of(*of_this).splitlines()[1:]}

    assert letters() <= set("SRDI")
    with node.process.paused():
        # The threads stop one after the other.
        wait_for("all threads to stop", lambda: letters() == {"T"})
        assert not node.commits()


def test_the_loop_that_waits_for_a_node_ends_when_it_is_synced(
    lone: Node, tmp_path: Path
) -> None:
    (words,) = (
        words
        for command, words in typed_on_pages("timeout")
        if "until clustercheckd check;" in command.line
    )
    program = tmp_path / "clustercheckd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m app "$@"\n')
    program.chmod(0o755)
    environ = {
        **without_settings(os.environ),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "MYSQL_SOCKET": str(lone.socket),
        "MYSQL_USERNAME": OF_THE_HARNESS,
        "MYSQL_PASSWORD": PASSWORD,
        "CLUSTERCHECK_DISABLED_FILE": str(tmp_path / "disabled"),
    }
    with lone.setting("wsrep_desync", "ON", "OFF"):
        waiting = subprocess.Popen(
            words, env=environ, stdout=subprocess.PIPE, text=True
        )
        assert waiting.stdout is not None
        shown = [waiting.stdout.readline().split()[:2] for _ in range(2)]
    rest, _ = waiting.communicate(timeout=60)
    assert shown == [["draining", "desynced:"], ["For", "what"]]
    assert (waiting.returncode, rest.splitlines()[-1].split()[:2]) == (
        0,
        ["available", "synced:"],
    )
