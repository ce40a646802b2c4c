"""The body of an answer. Its sentences are those of Percona's script, and never change."""

from app.verdict.reason import Reason
from app.verdict.rules import Verdict

_WORDS = {Reason.READ_ONLY: "read-only", Reason.DISABLED: "manually disabled"}


def body_of(verdict: Verdict) -> str:
    """Return the script's sentence, and the reason and detail unless it is `synced`."""
    words = "synced" if verdict.available else _WORDS.get(verdict.reason, "not synced")
    body = f"Percona XtraDB Cluster Node is {words}.\r\n"
    if verdict.reason is Reason.SYNCED:
        return body
    # Users match on "is synced", and a path may be named so.
    return f"{body}{verdict.reason}: {verdict.detail.replace('is synced', 'is-synced')}\r\n"
