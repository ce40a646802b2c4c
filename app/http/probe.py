"""The fast path: a health check's request to the bytes of its answer.

Stands in front of the FastAPI application and answers what load balancers ask; all else it passes on. The answer leaves
in the same step of the event loop, with one exception: a 200 that is in doubt waits for the observation under way.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from app.monitor import Monitor
from app.sentences import sentence_of
from app.verdict import AVAILABLE, UNAVAILABLE, Policy, Reason, Verdict, status_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

VERDICT_PATHS = ("/", "*", "/readyz")
"""Answered with the verdict; `*` is what `OPTIONS *` asks for."""

LIVENESS_PATH = "/livez"

OTHER_PATHS = "other"
"""What stands for all other paths where answers are counted."""

_BAD_REQUEST, _NOT_FOUND = 400, 404

_FLAGS = {"0": False, "1": True}
_FLAG_OVERRIDES = ("available_when_donor", "available_when_readonly", "available_when_full")
_COUNT_OVERRIDE = "max_recv_queue"
_MOST_DIGITS = 19
# Checked before a query is parsed, which takes longer than the whole answer where a client sends 8 KiB of `a&a&a...`.
QUERY_BYTES, QUERY_PARAMETERS = 512, 16
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


class ProbeCounts:
    """What was answered since the start: answers by path and status, and the answers that were held.

    Every count is there from the beginning, so that what a client sends makes none.
    """

    def __init__(self, drain_status: int = UNAVAILABLE, *, any_path: bool = False) -> None:
        self.held = 0
        verdict = {AVAILABLE, UNAVAILABLE, drain_status}
        statuses = {
            **dict.fromkeys(VERDICT_PATHS, verdict | {_BAD_REQUEST}),
            LIVENESS_PATH: {AVAILABLE, UNAVAILABLE},
            OTHER_PATHS: verdict if any_path else {_NOT_FOUND},
        }
        self.answered = {path: dict.fromkeys(sorted(known), 0) for path, known in statuses.items()}


class Probe:
    """An ASGI application that answers probes from the monitor and passes other requests on.

    passed_on: answers passed_on_paths. drain_status: the status of a node that is draining. any_path: whether all
    other paths get the verdict, not 404.
    """

    def __init__(
        self,
        monitor: Monitor,
        passed_on: "ASGIApp",
        passed_on_paths: Collection[str],
        counts: ProbeCounts,
        *,
        drain_status: int = UNAVAILABLE,
        any_path: bool = False,
    ) -> None:
        self._monitor = monitor
        self._passed_on = passed_on
        self._passed_on_paths = passed_on_paths
        self._counts = counts
        self._drain_status = drain_status
        self._any_path = any_path
        endpoints = ", ".join(path for path in (*VERDICT_PATHS, LIVENESS_PATH, *passed_on_paths) if path != "*")
        self._not_found = plain_answer(_NOT_FOUND, f"not found: there are {endpoints}\r\n")

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request; any method gets the same."""
        path = scope["path"]
        if path in VERDICT_PATHS:
            answer = await self._answer(scope["query_string"])
        elif path == LIVENESS_PATH:
            answer = liveness_answer(alive=self._monitor.alive)
        elif path in self._passed_on_paths:
            await self._passed_on(scope, receive, send)
            return
        else:
            path = OTHER_PATHS
            # Whatever stands in the query was never read by the script either.
            answer = await self._answer(b"") if self._any_path else self._not_found
        self._counts.answered[path][answer.status] += 1
        await answer.send(send)

    async def _answer(self, query: bytes) -> Answer:
        try:
            policy = overridden(self._monitor.policy, query) if query else None
        except BadOverrideError as fault:
            return plain_answer(_BAD_REQUEST, f"{fault}\r\n")
        verdict = self._monitor.verdict(policy)
        # A 503 is never held: it harms nobody by being early, and a load balancer may be about to give up waiting.
        if verdict.available and self._monitor.in_doubt:
            self._counts.held += 1
            verdict = await self._monitor.next_verdict(policy)
        return verdict_answer(verdict, self._drain_status)


@lru_cache(maxsize=64)
def overridden(policy: Policy, query: bytes) -> Policy:
    """Apply the overrides of a raw query string to a policy.

    Raises `BadOverrideError` for a key that is unknown or comes twice, for a bad value, and for too long a query.
    """
    if len(query) > QUERY_BYTES:
        message = f"the query is longer than {QUERY_BYTES} bytes"
        raise BadOverrideError(message)
    if query.count(b"&") >= QUERY_PARAMETERS:
        message = f"the query has more than {QUERY_PARAMETERS} parameters"
        raise BadOverrideError(message)
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


def liveness_answer(*, alive: bool) -> Answer:
    """Render what /livez says: whether observations still come in, good or bad."""
    if alive:
        return plain_answer(AVAILABLE, "alive\r\n")
    return plain_answer(UNAVAILABLE, "the monitor has stopped observing\r\n")


def plain_answer(status: int, body: str, reason: Reason | None = None) -> Answer:
    """Make an answer in text/plain that must not be cached; `connection: close` is the guard's to add."""
    encoded = body.encode("ascii", "replace")
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(encoded)).encode()),
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
