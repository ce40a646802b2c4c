"""The FastAPI application: /status, /metrics and the schema."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import BaseModel

from app import __version__
from app.http.answers import METRICS_PATH, SCHEMA_PATH, STATUS_PATH
from app.http.connections import TurnedAway
from app.http.metrics import Metrics
from app.http.reload_outcome import ReloadOutcome
from app.http.sources import Sources
from app.monitor.changes import Change
from app.settings.source import Told
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Switches, Verdict

_RECENT_SECONDS = 60.0
_PATIENCE_SECONDS = 1.0
"""How long /status waits for a poll. The commands wait for 2 s, and the deadline may be longer."""


class StatusConnections(BaseModel, from_attributes=True):
    """How many connections were closed without a verdict, by cause, and the latest of each.

    refused: the client is not in CLUSTERCHECK_ALLOW_FROM. evicted: to make room for a new
    connection. timed-out: the client had sent nothing. For all other causes, it got a 400.
    """

    closed: dict[str, int]
    latest: dict[str, TurnedAway]


class Status(BaseModel):
    """Everything that clustercheckd knows about its node.

    available: under the configured policy. draining: unavailable for a planned reason. detail: what
    clustercheckd saw, and which setting decided. also: what else speaks against the node.
    otherwise: the verdict without the drain or shutdown, if there is one. since: when the verdict
    last changed. age_seconds: since the latest completed poll began. node: what that poll read, or
    failure: why it failed. answered: to health checks within the last minute, by path with
    parameters. settings: what is set, and where. login_failure: why the latest login failed.
    changes: of the verdict, oldest first.
    """

    version: str
    pid: int
    available: bool
    draining: bool
    reason: Reason
    detail: str
    also: list[Verdict]
    otherwise: Verdict | None
    since: datetime
    age_seconds: float
    node: NodeState | None
    failure: PollFailure | None
    policy: Policy
    answered: dict[str, Verdict]
    settings: Mapping[str, Told]
    login_failure: PollFailure | None
    last_reload: ReloadOutcome
    connections: StatusConnections
    changes: list[Change]


def create_application(sources: Sources) -> FastAPI:
    """Return the application that answers `APPLICATION_PATHS`."""
    monitor, measured = sources.monitor, Metrics(sources)
    application = FastAPI(
        title="clustercheckd",
        version=__version__,
        description="Tells load balancers whether a Galera node may take traffic.",
        openapi_url=SCHEMA_PATH,
        # These pages load scripts from a CDN, which a database host usually cannot reach.
        docs_url=None,
        redoc_url=None,
        # HAProxy treats a redirect as UP.
        redirect_slashes=False,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "auto_configure": False,
        },
    )

    # Made once a poll, and once a second while a poll hangs: 256 clients that ask for a document at
    # once would delay a health check by a second.
    @lru_cache(maxsize=1)
    def status_at(_moment: object) -> str:
        return _status(sources).model_dump_json()

    @lru_cache(maxsize=1)
    def metrics_at(_moment: object) -> bytes:
        return generate_latest(measured)

    def moment() -> object:
        # A drain since the latest poll must be among the changes too.
        monitor.note_change()
        return (
            monitor.polls.total(),
            int(monitor.age_seconds),
            monitor.verdict(),
            sources.last_reload.at,
        )

    @application.get(
        STATUS_PATH,
        summary="Verdict, node state and recent changes",
        response_model=Status,
    )
    async def status() -> Response:
        """Answer 200 whatever the verdict."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await monitor.fresh_verdict()
        return Response(status_at(moment()), media_type="application/json")

    # The schema describes only JSON.
    @application.get(METRICS_PATH, include_in_schema=False)
    async def metrics() -> Response:
        """Answer 200 whatever the verdict."""
        return Response(metrics_at(moment()), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return application


def _status(sources: Sources) -> Status:
    monitor = sources.monitor
    verdict, seen, switches = monitor.verdict(), monitor.result, monitor.switches()
    return Status(
        version=__version__,
        pid=os.getpid(),
        **asdict(verdict),
        draining=verdict.draining,
        also=monitor.against(),
        otherwise=monitor.verdict(switches=Switches()) if switches.any_on else None,
        since=monitor.changes[-1].at,
        age_seconds=round(monitor.age_seconds, 3),
        node=seen if isinstance(seen, NodeState) else None,
        failure=seen if isinstance(seen, PollFailure) else None,
        policy=monitor.polling.policy,
        answered={
            path: verdict
            for path, (at, verdict) in sources.answered.items()
            if monitor.now() - at <= _RECENT_SECONDS
        },
        settings=sources.loaded.told,
        login_failure=sources.poller.logins.failure,
        last_reload=sources.last_reload,
        connections=StatusConnections.model_validate(sources.connections),
        changes=list(monitor.changes),
    )
