"""How a line of the log is written. That the page lists every event: test_documents.py."""

import json
import logging
import sys

import pytest

from app.service.log import LineFormatter, goes_to_journal


def record(event: str, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    """Make a record of the first second of 2026."""
    values = {
        "msg": event,
        "levelno": level,
        "levelname": logging.getLevelName(level),
        "created": 1767225600.1234,
    }
    return logging.makeLogRecord({**values, **fields})


def failed() -> logging.LogRecord:
    """Make a record of an exception."""
    try:
        raise RuntimeError("at\nfault")  # noqa: TRY301 (as any)
    except RuntimeError:
        return record("poller failed", logging.ERROR, exc_info=sys.exc_info())


def test_text_has_fields_that_grep_and_people_can_read() -> None:
    written = record(
        "unavailable", reason="not-ready", was="synced", planned=None, detail='it "is" a=b\\'
    )
    assert LineFormatter().format(written) == (
        '2026-01-01T00:00:00Z WARNING unavailable reason=not-ready was=synced detail="it \\"is\\" a=b\\\\"'
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("10.0.0.1:9200", "10.0.0.1:9200"),
        ("", '""'),
        ("a=b", '"a=b"'),
        ("line\nline\x1b[2J", '"line\\nline\\u001b[2J"'),
        ("päß", '"p\\u00e4\\u00df"'),
        (True, "true"),
        (0.25, "0.25"),
        (151, "151"),
    ],
)
def test_values_in_text(value: object, written: str) -> None:
    assert LineFormatter().format(record("event", value=value)).endswith(f" event value={written}")


def test_json_is_an_object_a_line_with_the_time_and_its_zone() -> None:
    line = LineFormatter(as_json=True).format(
        record("unavailable", reason="donor", planned=True, was=None, detail="a\nb")
    )
    assert "\n" not in line
    assert list(json.loads(line).items()) == [
        ("time", "2026-01-01T00:00:00.123Z"),
        ("level", "warning"),
        ("event", "unavailable"),
        ("reason", "donor"),
        ("planned", True),
        ("was", None),
        ("detail", "a\nb"),
    ]
    failure = json.loads(LineFormatter(as_json=True).format(failed()))
    assert failure["exception"].endswith("RuntimeError: at\nfault")


def test_in_the_journal_each_line_has_its_priority() -> None:
    text, as_json = LineFormatter(in_journal=True), LineFormatter(as_json=True, in_journal=True)
    assert (
        text.format(record("available", logging.INFO, reason="synced"))
        == "<6>available reason=synced"
    )
    assert text.format(record("login failed")) == "<4>login failed"
    assert as_json.format(record("login failed")).startswith(
        '<4>{"time": "2026-01-01T00:00:00.123Z", '
    )
    lines = text.format(failed()).splitlines()
    assert lines[0] == "<3>poller failed"
    assert len(lines) > 3
    assert all(line.startswith("<3>") for line in lines)


@pytest.mark.parametrize("stream", ["", "1:2", "x"])
def test_a_journal_stream_that_is_not_standard_error_is_none(stream: str) -> None:
    # Inherited by whatever a service starts with another standard error.
    assert not goes_to_journal({"JOURNAL_STREAM": stream})
