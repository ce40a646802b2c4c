"""What each request is answered.

If the latest poll is fresh enough, the answer to a health check needs no other step of the event
loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from app.http.head import Request
from app.http.sources import Sources
from app.settings.env_file import Variable
from app.settings.error import SettingsError
from app.settings.settings import NOTHING_READS, POLICY
from app.settings.source import values_of
from app.text import one_line
from app.verdict.body import body_of
from app.verdict.reason import Reason
from app.verdict.rules import AVAILABLE, UNAVAILABLE, Policy, Verdict, status_of

Application = Callable[..., Awaitable[None]]
"""An ASGI application."""

VERDICT_PATHS = ("/", "*", "/readyz")
"""The paths of the verdict; `*` is the path of `OPTIONS *`."""

LIVENESS_PATH = "/livez"

STATUS_PATH, METRICS_PATH, SCHEMA_PATH = "/status", "/metrics", "/openapi.json"
APPLICATION_PATHS = (STATUS_PATH, METRICS_PATH, SCHEMA_PATH)
"""Those that FastAPI answers."""

OTHER_PATHS = "other"
"""Stands for all other paths in the counts."""

_MOST_PATHS = 12
"""With parameters, so many are told apart: no client can make memory grow."""


class Answer(NamedTuple):
    """An answer. head: its bytes before the body."""

    status: int
    head: bytes
    body: bytes


class Answers:
    """Answers all requests, `APPLICATION_PATHS` with a FastAPI application."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.application: asyncio.Future[Application]

    def to(self, request: Request) -> Answer | Awaitable[Answer] | None:
        """Return the answer, or what will be it; None if a client that sends nothing gets none."""
        path, query, _ = request
        if path == LIVENESS_PATH:
            return self._counted(
                path, _ALIVE if self._sources.monitor.alive else _STUCK
            )
        if path in APPLICATION_PATHS:
            return _document(self.application, path)
        if path not in VERDICT_PATHS:
            if not self._sources.settings.clustercheck_any_path:
                return self._counted(OTHER_PATHS, _NO_SUCH_PATH) if path else None
            # Ignore the query: the script never read it either.
            path, query = OTHER_PATHS, b""
        monitor = self._sources.monitor
        try:
            policy = self._policy_of(query) if query else None
        except SettingsError as fault:
            return self._counted(path, plain_answer(400, f"{fault}\r\n"))
        if query:
            path += f"?{query.decode('latin-1')}"
        verdict = monitor.verdict_if_fresh(policy)
        if verdict is None:
            return self._after_a_poll(path, policy)
        return self._verdict(path, verdict)

    def _policy_of(self, query: bytes) -> Policy:
        policy = policy_of(query, self._sources.monitor.polling.policy)
        if (
            policy.max_sync_wait
            and not self._sources.settings.clustercheck_login_interval
        ):
            raise SettingsError(f"max_sync_wait: {NOTHING_READS}")
        return policy

    async def _after_a_poll(self, path: str, policy: Policy | None) -> Answer:
        return self._verdict(path, await self._sources.monitor.fresh_verdict(policy))

    def _verdict(self, path: str, verdict: Verdict) -> Answer:
        answered = self._sources.answered
        if "?" in path and path not in answered and len(answered) >= _MOST_PATHS:
            path = OTHER_PATHS
        answered[path] = self._sources.monitor.now(), verdict
        drain_status = int(self._sources.settings.clustercheck_drain_status)
        return self._counted(path, verdict_answer(verdict, drain_status))

    def _counted(self, path: str, answer: Answer) -> Answer:
        self._sources.health_checks[f"{path} {answer.status}"] += 1
        return answer


async def _document(application: asyncio.Future[Application], path: str) -> Answer:
    """Return what an ASGI application answers to a GET, which is a whole response."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [],
    }

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    # The client may leave while it is made.
    answering = await asyncio.shield(application)
    await answering(scope, None, send)  # no document asks for the body
    start, end = sent
    return _answer(start["status"], start["headers"], end["body"])


# A load balancer asks the same again and again.
@lru_cache(maxsize=64)
def policy_of(query: bytes, policy: Policy) -> Policy:
    """Return policy with the overrides of a raw query string. Raises `SettingsError`."""
    # To parse as many as fit would take five times the work of a health check.
    if query.count(b"&") > len(POLICY):
        raise SettingsError("too many parameters")
    overrides: dict[str, Variable] = {}
    for key, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if key not in POLICY:
            # It must not break the one-line body, nor a terminal.
            raise SettingsError(
                f"unknown parameter '{one_line(key[:40])}': the parameters are {', '.join(POLICY)}"
            )
        if key in overrides:
            raise SettingsError(f"{key} is given twice")
        overrides[key] = Variable(key, value)
    return replace(policy, **values_of(overrides))


@lru_cache(maxsize=64)
def verdict_answer(verdict: Verdict, drain_status: int = UNAVAILABLE) -> Answer:
    """Return the answer of a verdict."""
    return plain_answer(
        status_of(verdict, drain_status), body_of(verdict), verdict.reason
    )


def plain_answer(status: int, body: str, reason: Reason | None = None) -> Answer:
    """Return an answer in plain text."""
    content = body.encode("ascii", "replace")
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
    ]
    if reason is not None:
        headers.append((b"x-clustercheck-reason", reason.encode()))
    return _answer(status, headers, content)


def _answer(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Answer:
    lines = [
        b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode()),
        *(b"%s: %s" % header for header in headers),
        b"connection: close",
    ]
    return Answer(status, b"\r\n".join(lines) + b"\r\n\r\n", body)


_NO_SUCH_PATH = plain_answer(
    404,
    "not found: the endpoints are /, /readyz, /livez, /status, /metrics, /openapi.json\r\n",
)
_ALIVE = plain_answer(AVAILABLE, "alive\r\n")
_STUCK = plain_answer(UNAVAILABLE, "clustercheckd has stopped polling: restart it\r\n")
