"""The fast path: a probe's request to the bytes of its answer, without awaiting anything but the sends.

Stands in front of the FastAPI application and answers what probers ask; all else it passes on. That nothing here
waits is what makes clients that half-close after their request get their answer.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from app.monitor import Monitor
from app.sentences import sentence_of
from app.verdict import Policy, Reason, Verdict

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

VERDICT_PATHS = ("/", "*", "/readyz")
"""Answered with the verdict; `*` is what `OPTIONS *` asks for."""

LIVENESS_PATH = "/livez"

AVAILABLE, UNAVAILABLE, BAD_REQUEST = 200, 503, 400

_FLAGS = {"0": False, "1": True}
_FLAG_OVERRIDES = ("available_when_donor", "available_when_readonly", "available_when_full")
_COUNT_OVERRIDE = "max_recv_queue"
_MOST_DIGITS = 19
OVERRIDES = (*_FLAG_OVERRIDES, _COUNT_OVERRIDE)
"""The query parameters that replace a setting of the policy for one request."""


class BadOverrideError(ValueError):
    """A query that cannot be followed; the message is one line that names the parameter."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; header names in lower case."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    async def send(self, send: "Send") -> None:
        """Send it as ASGI messages."""
        start: Message = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


class Probe:
    """An ASGI application that answers probes from the monitor and passes everything else on.

    drain_status: the status of a node that is draining. other_paths: what is passed on, None for all that is no path
    of the probe's own; the verdict is given on the rest.
    """

    def __init__(
        self,
        monitor: Monitor,
        passed_on: "ASGIApp",
        *,
        drain_status: int = UNAVAILABLE,
        other_paths: Collection[str] | None = None,
    ) -> None:
        self._monitor = monitor
        self._passed_on = passed_on
        self._drain_status = drain_status
        self._other_paths = other_paths

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request; any method gets the same."""
        path = scope["path"]
        if path in VERDICT_PATHS:
            await self._verdict(scope["query_string"]).send(send)
        elif path == LIVENESS_PATH:
            await liveness_answer(alive=self._monitor.alive).send(send)
        elif self._other_paths is None or path in self._other_paths:
            await self._passed_on(scope, receive, send)
        else:
            # Whatever stands there was never read by the script either.
            await self._verdict(b"").send(send)

    def _verdict(self, query: bytes) -> Answer:
        try:
            policy = overridden(self._monitor.policy, query) if query else None
        except BadOverrideError as fault:
            return plain_answer(BAD_REQUEST, f"{fault}\r\n")
        return verdict_answer(self._monitor.verdict(policy), self._drain_status)


@lru_cache(maxsize=64)
def overridden(policy: Policy, query: bytes) -> Policy:
    """Apply the overrides of a raw query string to a policy.

    Raises `BadOverrideError` for a key that is unknown or comes twice, and for a bad value.
    """
    changes: dict[str, bool | int] = {}
    for key, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if key not in OVERRIDES:
            message = f"unknown parameter {_quoted(key)}: there are {', '.join(OVERRIDES)}"
            raise BadOverrideError(message)
        if key in changes:
            message = f"{key} is given twice"
            raise BadOverrideError(message)
        changes[key] = _flag(key, value) if key in _FLAG_OVERRIDES else _count(key, value)
    return replace(policy, **changes)  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def verdict_answer(verdict: Verdict, drain_status: int = UNAVAILABLE) -> Answer:
    """Render a verdict: the script's sentence, and, unless the node is plainly synced, the reason and what was seen."""
    body = sentence_of(verdict)
    if verdict.reason is not Reason.SYNCED:
        # Whoever matches on the good sentence must not find it in a detail, whatever the server or a path says.
        body += f"\r\n{verdict.reason}: {verdict.detail.replace('is synced', 'is-synced')}"
    return plain_answer(status_of(verdict, drain_status), f"{body}\r\n", verdict.reason)


def status_of(verdict: Verdict, drain_status: int = UNAVAILABLE) -> int:
    """Give the HTTP status of a verdict."""
    if verdict.available:
        return AVAILABLE
    return drain_status if verdict.draining else UNAVAILABLE


def liveness_answer(*, alive: bool) -> Answer:
    """Render what /livez says: whether observations still come in, good or bad."""
    if alive:
        return plain_answer(AVAILABLE, "alive\r\n")
    return plain_answer(UNAVAILABLE, "the monitor has stopped observing\r\n")


def plain_answer(status: int, body: str, reason: Reason | None = None) -> Answer:
    """Make an answer in text/plain that ends the connection and must not be cached."""
    encoded = body.encode("ascii", "replace")
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(encoded)).encode()),
        (b"connection", b"close"),
        (b"cache-control", b"no-store"),
    ]
    if reason is not None:
        headers.append((b"x-clustercheck-reason", reason.value.encode()))
    return Answer(status, tuple(headers), encoded)


def _flag(key: str, value: str) -> bool:
    if value not in _FLAGS:
        message = f"{key} must be 0 or 1, not {_quoted(value)}"
        raise BadOverrideError(message)
    return _FLAGS[value]


def _count(key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS):
        message = f"{key} must be a whole number, not {_quoted(value)}"
        raise BadOverrideError(message)
    return int(value)


def _quoted(text: str) -> str:
    # Into a one-line plain text body, from whoever asks.
    return "'" + "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:40]) + "'"
