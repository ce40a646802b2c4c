"""The fast path: answers health checks, and passes other requests on to FastAPI.

If the latest poll is fresh enough, the answer leaves in the same step of the event loop.
"""

from dataclasses import replace
from functools import lru_cache
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.sources import Sources
from app.settings.files import SettingsError
from app.settings.settings import POLICY, settings_of
from app.settings.values import Variable
from app.text import one_line
from app.verdict.body import body_of
from app.verdict.reason import Reason
from app.verdict.rules import AVAILABLE, UNAVAILABLE, Policy, Verdict, status_of

VERDICT_PATHS = ("/", "*", "/readyz")
"""The paths of the verdict; `*` is the path of `OPTIONS *`."""

LIVENESS_PATH = "/livez"

STATUS_PATH, METRICS_PATH, SCHEMA_PATH = "/status", "/metrics", "/openapi.json"
APPLICATION_PATHS = (STATUS_PATH, METRICS_PATH, SCHEMA_PATH)
"""Those that FastAPI answers."""

OTHER_PATHS = "other"
"""Stands for all other paths in the counts."""


class HealthChecks:
    """An ASGI application that answers all but `APPLICATION_PATHS`, which it passes on."""

    def __init__(self, sources: Sources, application: ASGIApp) -> None:
        self._sources = sources
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. The method makes no difference."""
        path = scope["path"]
        if path in VERDICT_PATHS:
            answer = await self._answer(scope["query_string"])
        elif path == LIVENESS_PATH:
            answer = _ALIVE if self._sources.monitor.alive else _STUCK
        elif path in APPLICATION_PATHS:
            await self._application(scope, receive, send)
            return
        else:
            path = OTHER_PATHS
            # With any_path, ignore the query: the script never read it either.
            any_path = self._sources.settings.clustercheck_any_path
            answer = await self._answer(b"") if any_path else _NO_SUCH_PATH
        self._sources.health_checks[path, answer.status_code] += 1
        await answer(scope, receive, send)

    async def _answer(self, query: bytes) -> Response:
        monitor = self._sources.monitor
        try:
            policy = policy_of(query, monitor.policy) if query else None
        except SettingsError as fault:
            return plain_answer(400, f"{fault}\r\n")
        verdict = await monitor.fresh_verdict(policy)
        drain_status = int(self._sources.settings.clustercheck_drain_status)
        return verdict_answer(verdict, drain_status)


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
    settings = settings_of(overrides)
    return replace(policy, **{name: getattr(settings, name) for name in overrides})


@lru_cache(maxsize=64)
def verdict_answer(verdict: Verdict, drain_status: int = UNAVAILABLE) -> Response:
    """Return the answer of a verdict."""
    return plain_answer(
        status_of(verdict, drain_status), body_of(verdict), verdict.reason
    )


def plain_answer(status: int, body: str, reason: Reason | None = None) -> Response:
    """Return an answer in plain text. The guard adds `connection: close`."""
    headers = {"content-type": "text/plain", "cache-control": "no-store"}
    if reason is not None:
        headers["x-clustercheck-reason"] = reason
    return Response(body.encode("ascii", "replace"), status, headers)


_NO_SUCH_PATH = plain_answer(
    404,
    "not found: the endpoints are /, /readyz, /livez, /status, /metrics, /openapi.json\r\n",
)
_ALIVE = plain_answer(AVAILABLE, "alive\r\n")
_STUCK = plain_answer(UNAVAILABLE, "clustercheckd has stopped polling: restart it\r\n")
