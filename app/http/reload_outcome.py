"""How the latest reload ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.verdict.node_state import PollFailure


@dataclass
class ReloadOutcome:
    """Its outcome; the start counts as one.

    at: when it began. complaints: why it was refused, one line each. failure: why the node, which
    can be read, could not be read with the new settings, if that is why. shut_out: who asked in the
    minute before, and may not with the new settings. warnings: what was ignored. env_file: what was
    read, if any.
    """

    at: datetime
    complaints: Sequence[str] = ()
    failure: PollFailure | None = None
    shut_out: Sequence[str] = ()
    warnings: Sequence[str] = ()
    env_file: str | None = None
