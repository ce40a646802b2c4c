"""The log: one line per event on standard error.

The message of a record is the name of an event, and its `extra` holds the fields.
docs/operations.md lists both.
"""

import json
import logging
import os
import re
import threading
from datetime import UTC, datetime
from logging.handlers import QueueHandler
from queue import Queue

_STANDARD_ERROR = 2
_LINES = 1000
"""So many lines may wait. Any further one is dropped and counted."""
_FLUSH_SECONDS = 0.5
"""How long the process waits at its end for the last lines."""

_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3}
"""The journal's numbers for the levels, sd-daemon(3)."""

_NO_FIELDS = vars(logging.makeLogRecord({}))
"""The attributes of a record without any `extra`."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,*-]+")

_log = logging.getLogger(__name__)


class LineFormatter(logging.Formatter):
    """Formats a record as one line of text or JSON. In the journal, it begins with a priority."""

    def __init__(self, *, as_json: bool = False, in_journal: bool = False) -> None:
        super().__init__()
        self._as_json = as_json
        self._in_journal = in_journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        fields = {
            name: value
            for name, value in vars(record).items()
            if name not in _NO_FIELDS
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # Some events of libraries have several lines.
        event = record.getMessage().replace("\n", " ")
        at = datetime.fromtimestamp(record.created, UTC)
        time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            origin = {"time": time, "level": record.levelname.lower(), "event": event}
            line = json.dumps(origin | fields, default=str)
        else:
            words = [
                f"{name}={_in_text(value)}"
                for name, value in fields.items()
                if value is not None
            ]
            # The journal records time and level itself.
            start = [] if self._in_journal else [time, record.levelname]
            line = " ".join([*start, event, *words])
        priority = f"<{_PRIORITIES.get(record.levelname, 6)}>"
        return f"{priority}{line}" if self._in_journal else line


def _in_text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def goes_to_journal() -> bool:
    """Return whether standard error leads to the journal (systemd.exec(5), JOURNAL_STREAM)."""
    stream = os.fstat(_STANDARD_ERROR)
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"


class Log(QueueHandler):
    """Formats each record and has a thread write it, so that no health check waits for that.

    A write may block for ever. So nothing joins the thread, as logging's own QueueListener does.
    """

    def __init__(self) -> None:
        self._lines: Queue[logging.LogRecord] = Queue(_LINES)
        super().__init__(self._lines)
        # How many lines were dropped because standard error was too slow or closed.
        self._dropped = 0
        threading.Thread(target=self._write_lines, daemon=True).start()
        logging.basicConfig(handlers=[self])
        # uvicorn tells each start and stop.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

    def format_as(self, level: str, layout: str) -> None:
        """Write records from this level on, in this layout: text or json."""
        self.setFormatter(
            LineFormatter(as_json=layout == "json", in_journal=goes_to_journal())
        )
        logging.getLogger().setLevel(level.upper())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 (logging's own)
        """Count a record for which the queue has no room."""
        self._dropped += 1

    def flush(self) -> None:
        """Wait up to 0.5 s until all lines are written. logging calls this at exit."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(
                lambda: not self._lines.unfinished_tasks, _FLUSH_SECONDS
            )

    def _write_lines(self) -> None:
        """Write the lines, then how many were dropped."""
        while True:
            line = self._lines.get().getMessage()
            try:
                os.write(_STANDARD_ERROR, f"{line}\n".encode(errors="backslashreplace"))
            except OSError:
                self._dropped += 1
            else:
                if self._dropped and self._lines.empty():
                    count, self._dropped = self._dropped, 0
                    _log.warning("log lines dropped", extra={"count": count})
            self._lines.task_done()
