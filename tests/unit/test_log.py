"""How a line of the log is written. That the page lists every event: test_stable_words.py."""

import logging
import sys

import pytest

from app.service.log import LineFormatter, goes_to_journal

AT = 1767225600.1234
"""In the first second of 2026."""


def record(event: str, level: str = "WARNING", **fields: object) -> logging.LogRecord:
    """Make a record."""
    return logging.makeLogRecord(
        {"msg": event, "levelname": level, "created": AT, **fields}
    )


def failed() -> logging.LogRecord:
    """Make a record of an exception."""
    try:
        raise RuntimeError("at\nfault")  # noqa: TRY301 (as any)
    except RuntimeError:
        return record("poller\nfailed", "ERROR", exc_info=sys.exc_info())


def test_text_has_fields_that_grep_and_people_can_read() -> None:
    written = record("unavailable", reason="not-ready", planned=None, detail='"a" b\\')
    start = "2026-01-01T00:00:00.123Z WARNING unavailable reason=not-ready"
    assert LineFormatter().format(written) == f'{start} detail="\\"a\\" b\\\\"'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("10.0.0.1:9200", "10.0.0.1:9200"),
        ("", '""'),
        ("a=b", '"a=b"'),
        ("line\nline\x1b[2J", '"line\\nline\\u001b[2J"'),
        (True, "true"),
        (1.9, "1.9"),
        (151, "151"),
    ],
)
def test_values_in_text(value: object, written: str) -> None:
    assert (
        LineFormatter()
        .format(record("event", value=value))
        .endswith(f" event value={written}")
    )


def test_in_the_journal_each_line_begins_with_its_priority() -> None:
    text, as_json = (
        LineFormatter(in_journal=True),
        LineFormatter(as_json=True, in_journal=True),
    )
    assert (
        text.format(record("available", "INFO", reason="synced"))
        == "<6>available reason=synced"
    )
    assert as_json.format(record("login failed")).startswith('<4>{"time": ')


@pytest.mark.parametrize("as_json", [False, True])
def test_an_exception_is_one_line(*, as_json: bool) -> None:
    line = LineFormatter(as_json=as_json).format(failed())
    assert "poller failed" in line
    assert "RuntimeError: at\\nfault" in line
    assert "\n" not in line


@pytest.mark.parametrize("stream", ["", "1:2"])
def test_a_journal_stream_that_is_not_standard_error_is_none(
    monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    # Inherited by whatever a service starts with another standard error.
    monkeypatch.setenv("JOURNAL_STREAM", stream)
    assert not goes_to_journal()
