"""The log: one line per event on standard error.

A thread writes it, so that no health check waits for standard error.

The message of a record is the name of an event, and its `extra` holds the fields.
docs/operations.md lists both.
"""

import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from queue import Full, Queue

_STANDARD_ERROR = 2
_LINES = 1000
"""How many lines may wait to be written. Any further line is dropped and counted."""
_FLUSH_SECONDS = 0.5
"""How long the process, before it exits, waits for the last lines to be written."""

_PRIORITIES = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
"""The journal's numbers for the levels, sd-daemon(3)."""

# The attributes of a record without any `extra`. uvicorn adds color_message to its records.
_NO_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"}
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,*-]+")


class LineFormatter(logging.Formatter):
    """Formats a record as a line of text, or of JSON. In the journal, the priority comes first."""

    def __init__(self, *, as_json: bool = False, in_journal: bool = False) -> None:
        super().__init__()
        self._as_json = as_json
        self._in_journal = in_journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; in text, followed by the lines of its exception."""
        at = datetime.fromtimestamp(record.created, UTC)
        event = record.getMessage()
        fields = {name: value for name, value in vars(record).items() if name not in _NO_FIELDS}
        exception = self.formatException(record.exc_info) if record.exc_info else None
        if self._as_json:
            time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            document = {"time": time, "level": record.levelname.lower(), "event": event, **fields}
            line = json.dumps(
                document | ({"exception": exception} if exception else {}), default=str
            )
        else:
            given = [
                f"{name}={_in_text(value)}" for name, value in fields.items() if value is not None
            ]
            # The journal records time and level itself.
            start = [] if self._in_journal else [f"{at:%Y-%m-%dT%H:%M:%SZ}", record.levelname]
            line = " ".join([*start, event, *given]) + (f"\n{exception}" if exception else "")
        if not self._in_journal:
            return line
        # The journal stores each line as an entry of its own.
        return "\n".join(
            f"<{_PRIORITIES.get(record.levelno, 6)}>{part}" for part in line.split("\n")
        )


def _in_text(value: object) -> str:
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def goes_to_journal(environ: Mapping[str, str]) -> bool:
    """Return whether standard error leads to the journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        found = os.fstat(_STANDARD_ERROR)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class Log(logging.Handler):
    """A logging handler that formats each record and has a thread write it.

    A write may block for ever, so the thread holds no lock and nothing joins it.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines: Queue[str] = Queue(_LINES)
        # How many lines were dropped because standard error was too slow or closed.
        self.dropped = 0
        threading.Thread(target=self._write_lines, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line for the thread, or drop it if too many are waiting."""
        try:
            self._lines.put_nowait(self.format(record))
        except Full:
            self.dropped += 1

    def flush(self) -> None:
        """Wait up to 0.5 s until all lines are written. logging calls this when the process exits."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(
                lambda: not self._lines.unfinished_tasks, _FLUSH_SECONDS
            )

    def _write_lines(self) -> None:
        """Write the lines.

        If none is waiting, also write how many were dropped since the last such report.
        """
        reported = 0
        while True:
            if not _write(self._lines.get()):
                self.dropped += 1
            elif self.dropped > reported and self._lines.empty():
                report = {
                    "levelno": logging.WARNING,
                    "levelname": "WARNING",
                    "msg": "log lines dropped",
                    "count": self.dropped - reported,
                    "detail": "standard error did not accept them",
                }
                reported = self.dropped
                self.emit(logging.makeLogRecord(report))
            self._lines.task_done()


def _write(line: str) -> bool:
    """Write a line to standard error, and return whether that worked."""
    data = f"{line}\n".encode(errors="backslashreplace")
    try:
        while data:
            data = data[os.write(_STANDARD_ERROR, data) :]
    except OSError:
        return False
    return True


def set_up_log(level: str, layout: str, environ: Mapping[str, str]) -> Log:
    """Set up logging to standard error and return its handler. Times are UTC.

    level: debug, info, warning or error. layout: text or json.
    """
    log = Log(LineFormatter(as_json=layout == "json", in_journal=goes_to_journal(environ)))
    logging.basicConfig(level=level.upper(), handlers=[log])
    # uvicorn logs a warning for each malformed request, so that any client could fill the disk. Set
    # the level on this very logger: uvicorn reads its `level`, not the effective one, to decide
    # whether to trace.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return log
