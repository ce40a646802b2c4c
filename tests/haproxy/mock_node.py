"""Mock nodes and clients: hundreds of clients at once, and faults that no real node shows on demand.

A mock node has two ports. The database port sends the node's name and keeps the session open. The check port
answers like clustercheckd beside a node in a given state. Clients read the name, so each knows which node it is on.
"""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from harness.block import Block
from harness.haproxy import Server
from harness.ports import LOOPBACK, Ports

T = TypeVar("T")

_SECONDS = 20.0
_CLIENT_SECONDS = 10.0
_BACKLOG = 1024
_CLIENT = "client"
"""What the tasks of clients are called."""
PLANNED = 404
"""What clustercheckd answers for a planned reason, with CLUSTERCHECK_DRAIN_STATUS=404."""

VERDICTS: dict[str, Callable[[str], int]] = {
    "synced": lambda _: 200,
    "donor": lambda target: 200 if "available_when_donor=1" in target else PLANNED,
    "read-only": lambda target: 503 if "available_when_readonly=0" in target else 200,
    "lagging": lambda target: 503 if "max_recv_queue=" in target else PLANNED,
    "disabled": lambda _: PLANNED,
    "non-primary": lambda _: 503,
}
"""The status of each reason, by the question."""


class Loop(Block):
    """An asyncio loop in a thread of its own, where all mock nodes and clients of a test run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.transports: set[asyncio.Transport] = set()
        """All connections, of nodes and of clients."""
        self._thread = threading.Thread(target=self.loop.run_forever)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(_SECONDS)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function there, and wait for what it returns."""

        async def called() -> T:
            return function()

        return self.run(called())

    def close(self) -> None:
        """End the tasks, the connections, the loop and the thread."""
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _start(self) -> None:
        self._thread.start()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            # asyncio's own, which makes a transport for a connection it has accepted, ends by itself and has to.
            if task.get_name() == _CLIENT:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self.transports:
            for transport in set(self.transports):
                transport.abort()
            await asyncio.sleep(0.01)


class _Connection(asyncio.Protocol):
    """A connection that its loop knows of."""

    def __init__(self, loop: Loop) -> None:
        self.transport: asyncio.Transport | None = None
        self._loop = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._loop.transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Forget it."""
        if self.transport:
            self._loop.transports.discard(self.transport)

    def leave(self) -> None:
        """End the connection."""
        if self.transport:
            self.transport.abort()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        if self.transport:
            self.transport.write(data)


class MockNode:
    """One node. `says` is its state, a key of `VERDICTS`, and may be set at any time."""

    def __init__(self, loop: Loop, ports: Ports, name: str, address: str = LOOPBACK) -> None:
        self.name = name
        self.says = "synced"
        self.hangs = False
        self.holds_seconds = 0.0
        """How long it holds back the answer to a check."""
        self.checks: list[tuple[float, str]] = []
        """When HAProxy asked, and what."""
        self.server = Server(name, ports.free(), ports.free(), address)
        self.peers: set[_Peer] = set()
        self._loop = loop
        self._listening: dict[type[_Peer], asyncio.Server] = {}

    @property
    def sessions(self) -> int:
        """How many sessions are open."""
        return sum(isinstance(peer, _SessionPeer) for peer in self.peers)

    def start(self) -> None:
        """Listen on both ports, in the network namespace that this thread has entered."""
        self.accept_clients()
        self.accept_checks()

    def accept_clients(self) -> None:
        """Listen on the database port."""
        self._listen(_SessionPeer, self.server.port)

    def accept_checks(self) -> None:
        """Listen on the check port."""
        self._listen(_CheckPeer, self.server.check_port)

    def hang(self) -> None:
        """Accept connections, and answer nothing."""
        self.hangs = True

    def refuse_clients(self) -> None:
        """Stop listening on the database port; sessions go on."""
        self._loop.call(self._listening.pop(_SessionPeer).close)

    def refuse_checks(self) -> None:
        """Stop listening on the check port."""
        self._loop.call(self._listening.pop(_CheckPeer).close)

    def end_sessions(self) -> None:
        """Close all connections from this side, as MariaDB does after wait_timeout."""
        for peer in set(self.peers):
            self._loop.call(peer.transport.close if peer.transport else peer.leave)

    def stop(self) -> None:
        """Close both ports and all connections, as the end of a process does."""
        for server in self._listening.values():
            self._loop.call(server.close)
        self._listening.clear()
        self._loop.call(self._abort)

    def _listen(self, peer: "type[_Peer]", port: int) -> None:
        listening = socket.create_server((self.server.address, port), backlog=_BACKLOG)
        self._listening[peer] = self._loop.run(
            self._loop.loop.create_server(lambda: peer(self, self._loop), sock=listening, backlog=_BACKLOG)
        )

    def _abort(self) -> None:
        for peer in set(self.peers):
            peer.leave()


class _Peer(_Connection):
    """A connection to a mock node."""

    def __init__(self, node: MockNode, loop: Loop) -> None:
        super().__init__(loop)
        self.node = node

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.node.peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.node.peers.discard(self)


class _SessionPeer(_Peer):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.node.hangs:
            self.send(self.node.name.encode())


class _CheckPeer(_Peer):
    def data_received(self, data: bytes) -> None:
        target = data.split()[1].decode()
        self.node.checks.append((time.monotonic(), target))
        if self.node.hangs:
            return
        says = self.node.says
        answer = f"HTTP/1.1 {VERDICTS[says](target)} X\r\nx-clustercheck-reason: {says}\r\n\r\n".encode()
        asyncio.get_running_loop().call_later(self.node.holds_seconds, self._answer, answer)

    def _answer(self, answer: bytes) -> None:
        self.send(answer)
        if self.transport:
            self.transport.close()


class Client(_Connection):
    """A client of HAProxy: when it asked, the node it is on and since when, and when its session ended."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.asked_at = time.monotonic()
        self.node: str | None = None
        self.served_at: float | None = None
        self.ended_at: float | None = None
        self.knows: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.node = data.decode()
        self.served_at = time.monotonic()
        self._end_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended_at = time.monotonic()
        self._end_waiting()

    @property
    def is_served(self) -> bool:
        """Whether it has a session."""
        return self.node is not None and self.ended_at is None

    def _end_waiting(self) -> None:
        if not self.knows.done():
            self.knows.set_result(None)


class Clients:
    """Clients of one port of HAProxy."""

    def __init__(self, loop: Loop, port: int) -> None:
        self._loop = loop
        self._port = port

    def open(self, count: int = 1, *, seconds: float = _CLIENT_SECONDS) -> list[Client]:
        """Connect so many at the same moment, and hold their sessions. Wait so long for each to be on a node."""
        return self._loop.run(self._connect_all(count, seconds))

    def landings(self, count: int = 1) -> Counter[str | None]:
        """Connect so many at the same moment, count where they land, and end their sessions."""
        clients = self.open(count)
        self.leave(clients)
        return Counter(client.node for client in clients)

    def lands_on(self) -> str | None:
        """Name the node that one new client lands on; None where it lands on none."""
        (node,) = self.landings()
        return node

    def leave(self, clients: list[Client]) -> None:
        """End their sessions."""
        for client in clients:
            self._loop.call(client.leave)

    @contextmanager
    def arriving(self, each_seconds: float = 0.02) -> Iterator[list[Client]]:
        """Have one client after the other come and go for as long as the block runs; gives those that came."""
        came: list[Client] = []
        stream = asyncio.run_coroutine_threadsafe(self._arrive(came, each_seconds), self._loop.loop)
        try:
            yield came
        finally:
            stream.cancel()

    async def _connect_all(self, count: int, seconds: float) -> list[Client]:
        return list(await asyncio.gather(*(self._connect(seconds) for _ in range(count))))

    async def _connect(self, seconds: float) -> Client:
        client = Client(self._loop)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_connection(lambda: client, LOOPBACK, self._port)
                await client.knows
        except OSError:
            client.leave()
            client.ended_at = time.monotonic()
        return client

    async def _arrive(self, came: list[Client], each_seconds: float) -> None:
        waiting: set[asyncio.Task[None]] = set()
        while True:
            waiting.add(asyncio.create_task(self._come_and_go(came), name=_CLIENT))
            waiting = {task for task in waiting if not task.done()}
            await asyncio.sleep(each_seconds)

    async def _come_and_go(self, came: list[Client]) -> None:
        client = await self._connect(_CLIENT_SECONDS)
        came.append(client)
        client.leave()
