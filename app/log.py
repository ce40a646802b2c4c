"""The log: one line per event on standard error. A thread writes it, so that no health check waits for standard error.

The message of a record is the name of an event, and its `extra` holds the fields. docs/operations.md lists both.
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
"""How many lines may wait to be written. Any further line is dropped and counted."""
_FLUSH_SECONDS = 0.5
"""How long the process, before it exits, waits for the last lines to be written."""


_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""The journal's numbers for the levels, sd-daemon(3)."""

# The attributes of a record without any `extra`. uvicorn adds color_message to its records.
_NO_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"}
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,*-]+")


class TextFormatter(logging.Formatter):
    """Formats a record as the event, then its fields as name=value. For the journal, the priority comes first."""

    def __init__(self, *, in_journal: bool = False) -> None:
        # The journal records the time and the level itself.
        super().__init__("%(message)s" if in_journal else "%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime
        self._in_journal = in_journal

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the record as one line, with the values that need it quoted as in JSON."""
        fields = (f" {name}={_in_text(value)}" for name, value in _fields(record).items() if value is not None)
        return super().formatMessage(record) + "".join(fields)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, followed by the lines of its exception."""
        text = super().format(record)
        return _with_priority(record, text) if self._in_journal else text


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line. For the journal, the priority comes first."""

    def __init__(self, *, in_journal: bool = False) -> None:
        super().__init__()
        self._in_journal = in_journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
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
    # The journal stores each line as an entry of its own.
    return "\n".join(f"<{_PRIORITIES.get(record.levelno, 6)}>{line}" for line in text.split("\n"))


def goes_to_journal(environ: Mapping[str, str]) -> bool:
    """Return whether standard error leads to the journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        found = os.fstat(_STANDARD_ERROR)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class Log(QueueHandler):
    """A logging handler that formats each record and has a thread write it."""

    queue: "Queue[logging.LogRecord]"

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__(Queue(_LINES))
        # QueueHandler formats a record before it is queued, so that later changes of its values do not show.
        self.setFormatter(formatter)
        self._rejected = 0
        self._writer = _Writer(self)
        self._writer.start()

    @property
    def dropped(self) -> int:
        """How many lines were dropped because standard error was too slow or closed."""
        return self._rejected + self._writer.failed

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line for the thread, or drop it if too many are waiting."""
        try:
            self.queue.put_nowait(record)
        except Full:
            self._rejected += 1

    def flush(self) -> None:
        """Wait up to 0.5 s until all lines are written. logging calls this when the process exits."""
        with self.queue.all_tasks_done:
            self.queue.all_tasks_done.wait_for(lambda: not self.queue.unfinished_tasks, _FLUSH_SECONDS)


class _Writer(QueueListener):
    """The thread that writes. A write may block for ever, so the thread holds no lock and nothing joins it."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.queue)
        self.failed = 0
        self._log = log
        self._reported = 0

    def handle(self, record: logging.LogRecord) -> None:
        """Write one line. If no other line is waiting, also write how many were dropped since the last such report."""
        if not _write(record.getMessage()):
            self.failed += 1
        lost = self._log.dropped - self._reported
        if lost and self._log.queue.empty():
            values = {"levelno": logging.WARNING, "levelname": "WARNING", "msg": "log lines dropped", "count": lost}
            report = logging.makeLogRecord({**values, "detail": "standard error did not accept them"})
            if _write(self._log.format(report)):
                self._reported += lost


def _write(line: str) -> bool:
    """Write a line to standard error, and return whether that worked."""
    data = f"{line}\n".encode(errors="backslashreplace")
    try:
        while data:
            try:
                data = data[os.write(_STANDARD_ERROR, data) :]
            except BlockingIOError:
                # Another process that shares this standard error may have made it non-blocking.
                select.select([], [_STANDARD_ERROR], [])
    except OSError:
        return False
    return True


def set_up_log(level: str, layout: str, environ: Mapping[str, str]) -> Log:
    """Set up logging to standard error and return its handler. Times are UTC.

    level: debug, info, warning or error. layout: text or json.
    """
    in_journal = goes_to_journal(environ)
    log = Log(JsonFormatter(in_journal=in_journal) if layout == "json" else TextFormatter(in_journal=in_journal))
    logging.basicConfig(level=level.upper(), handlers=[log])
    # uvicorn logs a warning for each malformed request, so that any client could fill the disk. Set the level on this
    # very logger: uvicorn reads its `level`, not the effective one, to decide whether to trace.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # asyncio logs nothing useful below a warning, only which selector it uses.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return log
