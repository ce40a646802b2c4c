"""What a process and its successor tell each other."""

import os
import socket
from contextlib import closing
from datetime import UTC, datetime

import pytest

from app.http.reload_outcome import ReloadOutcome
from app.service.successor import Known, Predecessor, Report
from app.verdict.alone import Look, Stand
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason

pytestmark = pytest.mark.anyio

REPORT = Report(
    1,
    ReloadOutcome(
        datetime.now(UTC), ["a line"], PollFailure(Reason.TIMEOUT, "none"), ["::1"], []
    ),
)
# A look that saw nothing has infinite times.
KNOWN = Known(
    datetime.now(UTC),
    ["/run/mysqld.sock", None, None, None],
    hangs=True,
    asked=["192.0.2.1"],
    sync_wait_seconds=None,
    stand=Stand(look=Look(at=1.5, seen={"com": 1})),
    sessions=2,
)


def pair() -> tuple[Predecessor, Predecessor]:
    """Return both ends of a channel."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def end(of: socket.socket) -> Predecessor:
        listening = socket.socket().detach()
        process = os.pidfd_open(os.getpid())
        channel = Predecessor(f"{of.detach()}:{listening}:{process}")
        channel.listening.close()
        os.close(process)
        return channel

    one, other = map(end, ends)
    return one, other


@pytest.mark.parametrize("message", [KNOWN, REPORT])
async def test_each_gets_what_the_other_has_told(message: Known | Report) -> None:
    one, other = pair()
    with closing(one), closing(other):
        one.tell(message)
        assert await other.answer(type(message)) == message


async def test_what_one_that_has_gone_told_still_arrives() -> None:
    one, other = pair()
    with closing(other):
        # The kernel tells of what it has not read first.
        other.tell(KNOWN)
        one.tell(REPORT)
        one.close()
        assert await other.answer(Report) == REPORT
        with pytest.raises(EOFError):
            await other.answer(Report)
        # Nobody is told.
        other.tell(KNOWN)
