"""The load generator: one health check per connection, as HAProxy does it.

Each connection is closed with a reset once it is answered.

It uses about half the CPU time that the server spends on a health check, so that the server is the
limit. Connects are blocking: on the loopback device, the handshake is complete when the call
returns. One epoll waits for the answers, and there is no event loop. Every answer must equal the
first one to the last byte; any other answer is an error.
"""

import select
import socket
import struct
import time
from typing import NamedTuple

from harness.ports import LOOPBACK

_TARGET = "/"

_RESET = struct.pack(
    "ii", 1, 0
)  # SO_LINGER, no time: close() sends RST, and no port is left in TIME_WAIT
_ANSWER_SECONDS = 10.0
_CHUNK = 65536


class WrongAnswerError(Exception):
    """A health check got no answer or a wrong one. The message is one line."""


class Load(NamedTuple):
    """The result of a measurement."""

    checks: int
    seconds: float
    latencies: list[float]

    @property
    def per_second(self) -> float:
        """Health checks answered per second."""
        return self.checks / self.seconds


def ask(port: int, target: str = _TARGET) -> bytes:
    """Send one health check and return the complete answer."""
    with socket.create_connection(
        (LOOPBACK, port), timeout=_ANSWER_SECONDS
    ) as connection:
        connection.sendall(_request(target))
        received = b""
        while chunk := connection.recv(_CHUNK):
            received += chunk
        return received


def _request(target: str) -> bytes:
    return f"GET {target} HTTP/1.0\r\n\r\n".encode()


def at_full_speed(
    port: int,
    connections: int,
    *,
    seconds: float = float("inf"),
    checks: float = float("inf"),
    target: str = _TARGET,
) -> Load:
    """Keep this many health checks under way, for seconds or until health checks have been sent."""
    end = time.monotonic() + seconds
    probing = _Probing(port, target)

    def next_one() -> None:
        if probing.sent < checks and time.monotonic() < end:
            probing.open()

    for _ in range(connections):
        next_one()
    while probing.under_way:
        for _ in range(probing.take(_ANSWER_SECONDS)):
            next_one()
    return probing.result()


def at_rate(port: int, per_second: float, seconds: float) -> Load:
    """Send health checks at a fixed rate, whether or not earlier ones have been answered."""
    begun = time.monotonic()
    probing = _Probing(port)
    wanted = round(per_second * seconds)
    while probing.sent < wanted:
        now = time.monotonic()
        due = begun + probing.sent / per_second
        if now >= due:
            probing.open()
        probing.take(max(0.0, due - now))
    while probing.under_way:
        probing.take(_ANSWER_SECONDS)
    return probing.result()


class _Probing:
    """The health checks under way to one port.

    A first one starts the clock. All further answers must equal its answer.
    """

    def __init__(self, port: int, target: str = _TARGET) -> None:
        self._request = _request(target)
        self._address = (LOOPBACK, port)
        self._epoll = select.epoll()
        self._open: dict[int, tuple[socket.socket, float]] = {}
        self._parts: dict[int, bytes] = {}
        self._begun = time.monotonic()
        self._expected = ask(port, target)
        self._latencies = [time.monotonic() - self._begun]
        self.sent = 1
        if not self._expected.startswith(b"HTTP/1.1 200 "):
            raise WrongAnswerError(f"port {port} answers {self._expected[:80]!r}")

    @property
    def under_way(self) -> int:
        return len(self._open)

    def open(self) -> None:
        began = time.perf_counter()
        check = socket.socket()
        check.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        check.connect(self._address)
        check.send(self._request)
        number = check.fileno()
        self._open[number] = (check, began)
        self._epoll.register(number, select.EPOLLIN)
        self.sent += 1

    def take(self, seconds: float) -> int:
        """Read the answers that have arrived, and return how many are complete.

        seconds: how long to wait for the first.
        """
        ready = self._epoll.poll(seconds)
        if not ready and seconds == _ANSWER_SECONDS:
            raise WrongAnswerError(
                f"{self.under_way} health checks without an answer for {seconds:g} s"
            )
        return sum(self._receive(number) for number, _ in ready)

    def result(self) -> Load:
        self._epoll.close()
        return Load(self.sent, time.monotonic() - self._begun, self._latencies)

    def _receive(self, number: int) -> bool:
        check, began = self._open[number]
        chunk = check.recv(_CHUNK)
        received = self._parts.pop(number, b"") + chunk
        if received != self._expected:
            if not chunk or not self._expected.startswith(received):
                raise WrongAnswerError(
                    f"port {self._address[1]} answered {received[:80]!r}"
                )
            self._parts[number] = received
            return False
        self._latencies.append(time.perf_counter() - began)
        del self._open[number]
        check.close()
        return True
