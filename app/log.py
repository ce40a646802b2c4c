"""The log: one line an event, on standard error, which may take its time: no answer waits for it.

The message of a record is the name of an event, and its `extra` are the fields: docs/operations.md lists both.
"""

import json
import logging
import os
import re
import select
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue

_STANDARD_ERROR = 2
_LINES = 1000
"""How many lines wait for standard error to take them; more are dropped and counted."""
_FLUSH_SECONDS = 0.5
"""How long the end of the process waits for the last lines to be written."""


_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""The journal's numbers for the levels, sd-daemon(3)."""

# What a record has without any `extra`; uvicorn adds a coloured form of its messages.
_NO_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"}
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,*-]+")


class TextFormatter(logging.Formatter):
    """Formats an event, then its fields as name=value, quoted where needed; in the journal its priority comes first."""

    def __init__(self, *, in_journal: bool = False) -> None:
        # The journal has the time and the level.
        super().__init__("%(message)s" if in_journal else "%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime
        self._in_journal = in_journal

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Write one line."""
        fields = (f" {name}={_in_text(value)}" for name, value in _fields(record).items() if value is not None)
        return super().formatMessage(record) + "".join(fields)

    def format(self, record: logging.LogRecord) -> str:
        """Write one line, and those of an exception."""
        text = super().format(record)
        return _with_priority(record, text) if self._in_journal else text


class JsonFormatter(logging.Formatter):
    """Formats an object a line; in the journal its priority comes first."""

    def __init__(self, *, in_journal: bool = False) -> None:
        super().__init__()
        self._in_journal = in_journal

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        line = json.dumps(document, default=str)
        return _with_priority(record, line) if self._in_journal else line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _NO_FIELDS}


def _in_text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _with_priority(record: logging.LogRecord, text: str) -> str:
    # The journal makes an entry of each line.
    return "\n".join(f"<{_PRIORITIES.get(record.levelno, 6)}>{line}" for line in text.split("\n"))


def goes_to_journal(environ: Mapping[str, str]) -> bool:
    """Whether standard error is the journal's: systemd.exec(5), JOURNAL_STREAM."""
    try:
        found = os.fstat(_STANDARD_ERROR)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class Log(QueueHandler):
    """A logging handler that makes a line of each record and leaves the writing to a thread."""

    queue: "Queue[logging.LogRecord]"

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__(Queue(_LINES))
        # Used when a record is made, so that the thread reads nothing that may have changed by then.
        self.setFormatter(formatter)
        self._without_room = 0
        self._writer = _Writer(self)
        self._writer.start()

    @property
    def dropped(self) -> int:
        """How many lines were lost, because standard error took no more or is gone."""
        return self._without_room + self._writer.failed

    def enqueue(self, record: logging.LogRecord) -> None:
        """Pass a line to the thread, or drop it where too many wait."""
        try:
            self.queue.put_nowait(record)
        except Full:
            self._without_room += 1

    def flush(self) -> None:
        """Wait for the last lines to be written, for a moment; logging calls this at the end of the process."""
        with self.queue.all_tasks_done:
            self.queue.all_tasks_done.wait_for(lambda: not self.queue.unfinished_tasks, _FLUSH_SECONDS)


class _Writer(QueueListener):
    """The thread. It may stay blocked in a write for ever, so it holds no lock and the end does not wait for it."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.queue)
        self.failed = 0
        self._log = log
        self._told = 0

    def handle(self, record: logging.LogRecord) -> None:
        """Write one line, and how many were dropped once all that waited is written."""
        if not _written(record.getMessage()):
            self.failed += 1
        lost = self._log.dropped - self._told
        if lost and self._log.queue.empty():
            values = {"levelno": logging.WARNING, "levelname": "WARNING", "msg": "log lines dropped", "count": lost}
            told = logging.makeLogRecord({**values, "detail": "standard error did not take them"})
            if _written(self._log.format(told)):
                self._told += lost


def _written(line: str) -> bool:
    data = f"{line}\n".encode(errors="backslashreplace")
    try:
        while data:
            try:
                data = data[os.write(_STANDARD_ERROR, data) :]
            except BlockingIOError:
                # Another process with the same standard error may have made it so.
                select.select([], [_STANDARD_ERROR], [])
    except OSError:
        return False
    return True


def set_up_log(level: str, layout: str, environ: Mapping[str, str]) -> Log:
    """Log from level (debug, info, warning or error) up, in a layout (text or json); times are UTC."""
    in_journal = goes_to_journal(environ)
    log = Log(JsonFormatter(in_journal=in_journal) if layout == "json" else TextFormatter(in_journal=in_journal))
    logging.basicConfig(level=level.upper(), handlers=[log])
    # uvicorn warns of each malformed request: anybody could fill the disk. Set on the logger itself, which it asks for
    # its own level, twice a connection, before it leaves out what it would trace.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # asyncio tells of its selector at debug level, and of nothing else we would want.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return log
