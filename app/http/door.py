"""One connection: reads one request, answers it, and waits for the client to close."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from app.http.answers import Answer, Answers, plain_answer
from app.http.head import CAUSES, REQUEST_BYTES, Request, read_head
from app.http.register import PARAMETER, REFUSED, ConnectionRegister, client_of

_BAD_REQUEST = 400
NOT_ALLOWED = "not in CLUSTERCHECK_ALLOW_FROM"


class Door(asyncio.Protocol):
    """One connection with limits. If it exceeds one, it is closed or gets a 400, but never a 503.

    peer: its address as a socket returns it. client: see `client_of`. is_held: a request has
    arrived, and its answer waits for the node.
    """

    def __init__(
        self, register: ConnectionRegister, answers: Answers, **_of_uvicorn: object
    ) -> None:
        self._register = register
        self._answers = answers
        self.is_held = False
        self._is_answered = self._has_ended = self._is_head = False
        self._sent = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or refuse it."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        if not peer:
            # It has left already.
            transport.abort()
            return
        self.peer: tuple[Any, ...] = peer
        self.client = client_of(peer[0])
        if self._register.allows(peer):
            self._register.add(self, asyncio.get_running_loop())
        else:
            self._register.note(REFUSED, peer[0], NOT_ALLOWED)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (a protocol's signature)
        """Forget the connection."""
        self._register.doors.pop(self, None)
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer as soon as the request is known, and drop what follows it."""
        if self._is_answered or self.is_held:
            return
        self._sent = (self._sent + data)[: REQUEST_BYTES + 1]
        self._answer(read_head(self._sent))

    def eof_received(self) -> bool:
        """Answer a client that half-closes after its request, as nc -N does."""
        self._has_ended = True
        self.settle(overdue=False)
        return self.is_held

    def settle(self, *, overdue: bool) -> None:
        """Answer what has been sent, if that is a request. overdue: or else close."""
        if self.is_held:
            return
        if self._is_answered:
            if overdue:
                self.transport.abort()
            return
        asked = read_head(self._sent, ended=True)
        if isinstance(asked, Request) or overdue or self._has_ended:
            self._answer(asked)
        if overdue and not (self.is_held or self._is_answered):
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
        if isinstance(answer, Answer):
            if answer.status == _BAD_REQUEST:
                self._register.note(cause, self.peer[0], answer.body.decode().strip())
            self._send(answer)
        elif answer:
            self.is_held = True
            self._task = asyncio.ensure_future(self._send_later(answer))

    async def _send_later(self, answer: Awaitable[Answer]) -> None:
        try:
            self._send(await answer)
        finally:
            self.is_held = False

    def _send(self, answer: Answer) -> None:
        self._is_answered, self._sent = True, b""
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
