"""The fast path: answers health checks, and passes other requests on to FastAPI.

If the latest poll is fresh enough, the answer leaves in the same step of the event loop. If not, it
waits for the next one: see `Monitor.fresh_verdict`.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from app.monitor.monitor import Monitor
from app.settings.files import SettingsError
from app.settings.settings import POLICY, Settings, settings_of
from app.settings.variables import Variable
from app.text import one_line
from app.verdict.body import body_of
from app.verdict.reason import Reason
from app.verdict.rules import AVAILABLE, UNAVAILABLE, Policy, Verdict, status_of

VERDICT_PATHS = ("/", "*", "/readyz")
"""The paths of the verdict; `*` is the path of `OPTIONS *`."""

LIVENESS_PATH = "/livez"

STATUS_PATH, METRICS_PATH, SCHEMA_PATH = "/status", "/metrics", "/openapi.json"
APPLICATION_PATHS = (STATUS_PATH, METRICS_PATH, SCHEMA_PATH)
"""The paths that the FastAPI application answers."""

OTHER_PATHS = "other"
"""Stands for all other paths in the counts."""


@dataclass(frozen=True)
class Answer:
    """A complete HTTP answer, with header names in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def send(self, send: Send) -> None:
        """Send the answer as ASGI messages."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": self.headers,
            }
        )
        await send({"type": "http.response.body", "body": self.body})


HealthCheckCounts = Counter[tuple[str, int]]
"""How many answers were sent, by path and status. No request can add a path."""


class HealthChecks:
    """An ASGI application that answers health checks from the monitor.

    It passes `APPLICATION_PATHS` on.
    """

    def __init__(
        self,
        settings: Settings,
        monitor: Monitor,
        application: ASGIApp,
        counts: HealthCheckCounts,
    ) -> None:
        self._monitor = monitor
        self._application = application
        self._counts = counts
        self._drain_status = int(settings.clustercheck_drain_status)
        self._any_path = settings.clustercheck_any_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. The method makes no difference."""
        path = scope["path"]
        if path in VERDICT_PATHS:
            answer = await self._answer(scope["query_string"])
        elif path == LIVENESS_PATH:
            answer = _ALIVE if self._monitor.alive else _STUCK
        elif path in APPLICATION_PATHS:
            await self._application(scope, receive, send)
            return
        else:
            path = OTHER_PATHS
            # With any_path, ignore the query: the script never read it either.
            answer = await self._answer(b"") if self._any_path else _NO_SUCH_PATH
        self._counts[path, answer.status] += 1
        await answer.send(send)

    async def _answer(self, query: bytes) -> Answer:
        try:
            policy = policy_of(query, self._monitor.policy) if query else None
        except SettingsError as fault:
            return plain_answer(400, f"{fault}\r\n")
        return verdict_answer(
            await self._monitor.fresh_verdict(policy), self._drain_status
        )


# A load balancer asks the same again and again.
@lru_cache(maxsize=64)
def policy_of(query: bytes, policy: Policy) -> Policy:
    """Return policy with the overrides of a raw query string: settings of it, in lower case.

    Raises `SettingsError` if a parameter is unknown, comes twice or has an invalid value, or if
    there are too many.
    """
    # To parse as many as fit would take five times the work of a health check.
    if query.count(b"&") > len(POLICY):
        raise SettingsError("too many parameters")
    overrides: dict[str, Variable] = {}
    for key, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if key not in POLICY:
            raise SettingsError(
                f"unknown parameter {_quoted(key)}: the parameters are {', '.join(POLICY)}"
            )
        if key in overrides:
            raise SettingsError(f"{key} is given twice")
        overrides[key] = Variable(key, value)
    return replace(policy, **settings_of(overrides).model_dump(exclude_unset=True))


@lru_cache(maxsize=64)
def verdict_answer(verdict: Verdict, drain_status: int = UNAVAILABLE) -> Answer:
    """Return the answer for a verdict. Most are the same."""
    return plain_answer(
        status_of(verdict, drain_status), body_of(verdict), verdict.reason
    )


def plain_answer(status: int, body: str, reason: Reason | None = None) -> Answer:
    """Return an answer in plain text that must not be cached.

    The guard adds `connection: close`.
    """
    raw = body.encode("ascii", "replace")
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(raw)),
        (b"cache-control", b"no-store"),
    ]
    if reason is not None:
        headers.append((b"x-clustercheck-reason", reason.encode()))
    return Answer(status, headers, raw)


_NO_SUCH_PATH = plain_answer(
    404,
    "not found: the endpoints are /, /readyz, /livez, /status, /metrics, /openapi.json\r\n",
)
_ALIVE = plain_answer(AVAILABLE, "alive\r\n")
_STUCK = plain_answer(UNAVAILABLE, "clustercheckd has stopped polling: restart it\r\n")


def _quoted(text: str) -> str:
    # The client's text must not break the one-line body, nor a terminal that shows it.
    return f"'{one_line(text[:40])}'"
