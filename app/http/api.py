"""The FastAPI application: what people and tools ask besides the verdict."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import BaseModel, Field, PlainSerializer, WithJsonSchema

from app import __version__
from app.http.metrics import create_registry
from app.http.sources import Sources
from app.node_state import NodeState, Unobserved
from app.verdict import Policy, Reason

STATUS_PATH = "/status"
METRICS_PATH = "/metrics"
SCHEMA_PATH = "/openapi.json"
PATHS = (STATUS_PATH, METRICS_PATH, SCHEMA_PATH)
"""What the application answers."""


_DIGITS = 3
"""Seconds are told to the millisecond."""


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[
    datetime,
    PlainSerializer(_iso, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]


class StatusChange(BaseModel):
    """A change of verdict under the configured policy."""

    at: Moment
    available: bool
    reason: Reason
    detail: str


class StatusConnections(BaseModel):
    """Connections of clients: those open now, and since the start those that got no answer from an endpoint."""

    open: int
    refused: int = Field(description="from outside CLUSTERCHECK_ALLOW_FROM")
    evicted: int = Field(description="to make room for another")
    timed_out: int = Field(description="no complete request in time")
    oversized: int = Field(description="too long a request")
    malformed: int = Field(description="not HTTP, answered with a 400")


class Status(BaseModel):
    """Everything clustercheckd knows about its node."""

    version: str = Field(description="of clustercheckd")
    available: bool = Field(description="the verdict under the configured policy")
    draining: bool = Field(description="unavailable in a planned way: sessions may finish")
    reason: Reason
    detail: str = Field(description="what was seen, and which setting decided")
    since: Moment = Field(description="when the verdict last changed")
    disabled_since: Moment | None = Field(description="when the disabled file was made; null where there is none")
    age_seconds: float = Field(description="time since the latest observation began")
    node: NodeState | None = Field(description="the latest observation; null where the node could not be read")
    unobserved: Unobserved | None = Field(description="why the node could not be read; null where it was")
    policy: Policy
    probes_held: int = Field(description="health checks that waited for the observation under way, since the start")
    connections: StatusConnections
    changes: list[StatusChange] = Field(description="the latest changes of verdict, oldest first")


def create_application(sources: Sources) -> FastAPI:
    """Make the application that the probe's fast path passes requests for `PATHS` on to."""
    monitor, register = sources.monitor, sources.register
    registry = create_registry(sources)
    application = FastAPI(
        title="clustercheckd",
        version=__version__,
        description="Tells load balancers whether a Galera node may take traffic.",
        openapi_url=SCHEMA_PATH,
        # Their pages load scripts from a CDN, which a database host does not reach.
        docs_url=None,
        redoc_url=None,
        # HAProxy takes a redirect for UP.
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )

    # One operation in the schema: FastAPI warns, in the log, of two with the same id.
    @application.head(STATUS_PATH, include_in_schema=False)
    @application.get(STATUS_PATH, summary="Verdict, node state and recent changes")
    async def status() -> Status:
        """Answer 200 whatever the verdict."""
        # A switch may have been made since the latest observation: what is told of the verdict and its change agrees.
        monitor.note_change()
        verdict = monitor.verdict()
        seen = monitor.observation
        return Status(
            version=__version__,
            available=verdict.available,
            draining=verdict.draining,
            reason=verdict.reason,
            detail=verdict.detail,
            since=datetime.fromtimestamp(monitor.changes[-1].at, UTC),
            disabled_since=_moment(sources.switches.disabled_at()),
            age_seconds=round(monitor.age_seconds, _DIGITS),
            node=seen if isinstance(seen, NodeState) else None,
            unobserved=seen if isinstance(seen, Unobserved) else None,
            policy=replace(monitor.policy, max_age_seconds=round(monitor.policy.max_age_seconds, _DIGITS)),
            probes_held=sources.counts.held,
            connections=StatusConnections(
                open=len(register),
                refused=register.refused,
                evicted=register.evicted,
                timed_out=register.timed_out,
                oversized=register.oversized,
                malformed=register.malformed,
            ),
            changes=[
                StatusChange(
                    at=datetime.fromtimestamp(change.at, UTC),
                    available=change.verdict.available,
                    reason=change.verdict.reason,
                    detail=change.verdict.detail,
                )
                for change in monitor.changes
            ],
        )

    # Not in the schema, which is that of the JSON.
    @application.head(METRICS_PATH, include_in_schema=False)
    @application.get(METRICS_PATH, include_in_schema=False)
    async def metrics() -> Response:
        """Answer 200 whatever the verdict; no other format is offered, so that nothing has to be negotiated."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return application


def _moment(at: float | None) -> datetime | None:
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):  # touch(1) can set any time
        return None
