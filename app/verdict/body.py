"""The sentences of Percona's clustercheck script.

Some users match on them, so they never change.
"""

from app.verdict.reason import Reason
from app.verdict.rules import Verdict

SYNCED = "Percona XtraDB Cluster Node is synced."
NOT_SYNCED = "Percona XtraDB Cluster Node is not synced."

_OF_REASON = {
    Reason.READ_ONLY: "Percona XtraDB Cluster Node is read-only.",
    Reason.DISABLED: "Percona XtraDB Cluster Node is manually disabled.",
}


def sentence_of(verdict: Verdict) -> str:
    """Return the sentence that the script would print for this verdict."""
    return SYNCED if verdict.available else _OF_REASON.get(verdict.reason, NOT_SYNCED)
