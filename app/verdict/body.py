"""The body of an answer. Its sentences are those of Percona's script, and never change."""

from app.verdict.reason import Reason
from app.verdict.rules import Verdict

_SYNCED = "Percona XtraDB Cluster Node is synced."
_NOT_SYNCED = "Percona XtraDB Cluster Node is not synced."

_OF_REASON = {
    Reason.READ_ONLY: "Percona XtraDB Cluster Node is read-only.",
    Reason.DISABLED: "Percona XtraDB Cluster Node is manually disabled.",
}


def body_of(verdict: Verdict) -> str:
    """Return the service's body."""
    body = script_body_of(verdict)
    if verdict.reason is Reason.SYNCED:
        return body
    # Users match on "is synced", and a path may be named so.
    return f"{body}{verdict.reason}: {verdict.detail.replace('is synced', 'is-synced')}\r\n"


def script_body_of(verdict: Verdict) -> str:
    """Return the script's body."""
    sentence = (
        _SYNCED if verdict.available else _OF_REASON.get(verdict.reason, _NOT_SYNCED)
    )
    return f"{sentence}\r\n"
