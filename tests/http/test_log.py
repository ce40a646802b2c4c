"""The log: it says all there is to say, and costs nobody anything where nobody reads it."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, error, galera, greets_then
from tests.http.test_process import redirected, run
from tests.measured import done_within


@contextmanager
def full_pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """Make a pipe that takes no more; return its ends, to read from and to write to."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as reading, os.fdopen(writer, "wb", 0) as writing:
        writing.write(b"." * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
        yield reading, writing


@pytest.mark.parametrize("reader_is", ["asleep", "gone"])
def test_a_log_that_nobody_reads_costs_no_answer_and_not_the_end(
    node: FakeMySQL, services: Services, reader_is: str
) -> None:
    with full_pipe() as (reader, writer):
        if reader_is == "gone":
            reader.close()
        number = writer.fileno()
        service = services.start_through(
            redirected(f"2>&{number} {number}>&-"),
            settings_for(node),
            pass_fds=[number],
        )
        writer.close()
        service.wait_for_verdict(200, "synced")
        service.disabled_file.touch()
        service.wait_for_verdict(503, "disabled")
        with done_within("the end", 3):
            assert service.process.stop() == 0


ODD = "ge\"h'e\\i m=#%s%d{0}$`é€"
"""A password with all that a log, a format, a URL or a terminal may treat in its own way."""


def forms_of(secret: str) -> set[str]:
    """Return a password as JSON, a traceback, a URL or a terminal would have it."""
    forms = {ascii(secret)[1:-1], repr(secret)[1:-1], json.dumps(secret)[1:-1]}
    return {secret, *forms, quote(secret), quote_plus(secret)}


@pytest.mark.parametrize("layout", ["text", "json"])
def test_no_password_is_in_any_output(
    node: FakeMySQL, services: Services, tmp_path: Path, layout: str
) -> None:
    path = tmp_path / "password"
    path.write_text(ODD)
    service = services.beside(
        node, CLUSTERCHECK_LOG_FORMAT=layout, MYSQL_PASSWORD_FILE=str(path)
    )
    text = ""
    # Quoted by the server that refuses it, or answers nonsense.
    for behaviour, status, reason in (
        (greets_then(error(1064, f"refused (using password: {ODD})")), 503, "error"),
        (galera(), 200, "synced"),
        (greets_then(ODD.encode()), 503, "timeout"),
    ):
        node.behaviour = behaviour
        node.drop_connections()
        service.wait_for_verdict(status, reason)
        for target in ("/", "/status", "/metrics"):
            text += service.get(target).body
        done = run("check", **settings_for(node), MYSQL_PASSWORD=ODD)
        text += done.stdout + done.stderr
    service.stop()
    text += service.log.read_text()
    assert "synced" in text
    assert [form for form in forms_of(ODD) if form in text] == []
