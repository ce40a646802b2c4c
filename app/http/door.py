"""One connection: reads one request, answers it, and waits for the client to close."""

import asyncio
import time
from collections.abc import Awaitable

from app.http.answers import Answer, Answers, plain_answer
from app.http.connections import (
    PARAMETER,
    REFUSED,
    ConnectionRegister,
    address_of,
    client_of,
)
from app.http.head import CAUSES, REQUEST_BYTES, Request, read_head

_BAD_REQUEST = 400

_MOST_BYTES = 1 << 18
"""How much to read of one connection, until its client closes it."""

NOT_ALLOWED = "not in CLUSTERCHECK_ALLOW_FROM"


class Door(asyncio.Protocol):
    """One connection with limits. If it exceeds one, it is closed or gets a 400, but never a 503.

    client: see `client_of`.
    """

    def __init__(self, register: ConnectionRegister, answers: Answers) -> None:
        self._register = register
        self._answers = answers
        self._has_asked = self._has_ended = self._is_head = False
        self._sent = b""
        self._received = 0
        self._task: asyncio.Task[None] | None = None
        self.made_at = time.monotonic()

    @property
    def is_held(self) -> bool:
        """Whether a request has arrived, and its answer waits for the node."""
        return self._task is not None and not self._task.done()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or refuse it."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        if not peer:
            # It has left already.
            transport.abort()
            return
        self.address = address_of(peer)
        self.client = client_of(self.address)
        if self._register.allows(self.address):
            self._register.add(self)
        else:
            self._register.note(REFUSED, self.address, NOT_ALLOWED)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (a protocol's signature)
        """Forget the connection."""
        self._register.doors.pop(self, None)
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer as soon as the request is known, and drop what follows it, but not all."""
        self._received += len(data)
        if self._received > _MOST_BYTES:
            # The client can still read its answer, and waits with the rest.
            self.transport.pause_reading()
        if not self._has_asked:
            self._sent = (self._sent + data)[: REQUEST_BYTES + 1]
            self._answer(read_head(self._sent))

    def eof_received(self) -> bool:
        """Answer a client that half-closes after its request, as nc -N does."""
        self._has_ended = True
        self.settle(overdue=False)
        return self.is_held

    def settle(self, *, overdue: bool) -> None:
        """Answer what has been sent, if that is a request. overdue: or else close."""
        if self._has_asked:
            if overdue and not self.is_held:
                self.transport.abort()
            return
        asked = read_head(self._sent, ended=True)
        if isinstance(asked, Request) or overdue or self._has_ended:
            self._answer(asked)
        if overdue and not self._has_asked:
            self._register.end(self, "timed-out")

    def _answer(self, asked: Request | str | None) -> None:
        """Answer a request, or say what is wrong with it."""
        answer: Answer | Awaitable[Answer] | None = None
        cause = PARAMETER
        if isinstance(asked, Request):
            self._is_head = asked.is_head
            answer = self._answers.to(asked)
        elif asked:
            cause = asked
            answer = plain_answer(_BAD_REQUEST, f"{CAUSES[cause]}\r\n")
        self._has_asked = answer is not None
        if isinstance(answer, Answer):
            if answer.status == _BAD_REQUEST:
                self._register.note(cause, self.address, answer.body.decode().strip())
            self._send(answer)
        elif answer:
            self._task = asyncio.ensure_future(self._send_later(answer))

    async def _send_later(self, answer: Awaitable[Answer]) -> None:
        self._send(await answer)

    def _send(self, answer: Answer) -> None:
        self._sent = b""
        if self.transport.is_closing():
            return
        self.transport.write(
            answer.head if self._is_head else answer.head + answer.body
        )
        if self._has_ended:
            self.transport.close()
        else:
            # A close would reset the connection if the client sends more, and it might lose the
            # answer.
            self.transport.write_eof()
