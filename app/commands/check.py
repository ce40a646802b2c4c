"""`clustercheckd check`: poll the node once."""

import dataclasses
import json

from app.commands.standard_streams import say
from app.database.poller import poll_once
from app.node_state import NodeState, PollFailure
from app.settings import Settings
from app.switches import ManualSwitches
from app.verdict import Verdict, decide

AVAILABLE, NOT_AVAILABLE = 0, 1
"""Exit statuses."""


def check(settings: Settings, *, as_json: bool) -> int:
    """Poll the node once and print the verdict; return the exit status."""
    seen = poll_once(settings.database(), settings.clustercheck_deadline)
    verdict = verdict_of(settings, seen)
    if as_json:
        document = {
            "available": verdict.available,
            "reason": verdict.reason,
            "detail": verdict.detail,
            "node": dataclasses.asdict(seen) if isinstance(seen, NodeState) else None,
        }
        say(json.dumps(document))
    else:
        say(f"{'available' if verdict.available else 'NOT available'} {verdict.reason}: {verdict.detail}")
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def verdict_of(settings: Settings, seen: NodeState | PollFailure) -> Verdict:
    """Return the verdict on a poll that has just ended."""
    return decide(seen, 0.0, settings.policy(), ManualSwitches(settings.clustercheck_disabled_file)())
