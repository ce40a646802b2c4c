"""The FastAPI application: what people and tools ask besides the verdict, and the 404 for everything else."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fastapi import FastAPI
from pydantic import BaseModel, Field

from app import __version__
from app.http.guard import ConnectionRegister
from app.http.probe import LIVENESS_PATH, plain_answer
from app.monitor import Monitor
from app.node_state import NodeState, Unobserved
from app.verdict import Policy, Reason

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

STATUS_PATH = "/status"
SCHEMA_PATH = "/openapi.json"
JSON_PATHS = (STATUS_PATH, SCHEMA_PATH)
ENDPOINTS = ("/", "/readyz", LIVENESS_PATH, *JSON_PATHS)

_NOT_FOUND = plain_answer(404, f"not found: there are {', '.join(ENDPOINTS)}\r\n")


class StatusChange(BaseModel):
    """A change of verdict under the configured policy."""

    at: datetime
    available: bool
    reason: Reason
    detail: str


class Status(BaseModel):
    """Everything clustercheckd knows about its node."""

    version: str = Field(description="of clustercheckd")
    available: bool = Field(description="the verdict under the configured policy")
    draining: bool = Field(description="unavailable in a planned way: sessions may finish")
    reason: Reason
    detail: str = Field(description="what was seen, and which setting decided")
    age_seconds: float = Field(description="time since the latest observation began, or failed")
    node: NodeState | None = Field(description="the latest observation; null where the node could not be read")
    unobserved: Unobserved | None = Field(description="why the node could not be read; null where it was")
    policy: Policy
    connections_refused: int = Field(description="connections from outside CLUSTERCHECK_ALLOW_FROM since the start")
    changes: list[StatusChange] = Field(description="the latest changes of verdict, oldest first")


def create_application(monitor: Monitor, register: ConnectionRegister) -> FastAPI:
    """Make the application that the probe's fast path passes other requests on to."""
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
    application.router.default = _not_found

    # One operation in the schema: FastAPI warns, in the log, of two with the same id.
    @application.head(STATUS_PATH, include_in_schema=False)
    @application.get(STATUS_PATH, summary="Verdict, node state and recent changes")
    async def status() -> Status:
        """Answer 200 whatever the verdict."""
        verdict = monitor.verdict()
        seen = monitor.observation
        return Status(
            version=__version__,
            available=verdict.available,
            draining=verdict.draining,
            reason=verdict.reason,
            detail=verdict.detail,
            age_seconds=monitor.age_seconds,
            node=seen if isinstance(seen, NodeState) else None,
            unobserved=seen if isinstance(seen, Unobserved) else None,
            policy=monitor.policy,
            connections_refused=register.refused,
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

    return application


async def _not_found(scope: "Scope", receive: "Receive", send: "Send") -> None:  # noqa: ARG001 (ASGI's signature)
    await _NOT_FOUND.send(send)
