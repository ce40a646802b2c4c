"""Random and mutated requests by the thousand: answered or closed, and nothing else happens."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from app.http.health_checks import APPLICATION_PATHS
from harness.ports import LOOPBACK
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL
from tests.http.test_requests import REQUESTS

REQUESTS_SENT = 20_000
AT_ONCE = 64
SECONDS = 60
SEED = 4

_TARGETS = [
    b"/", b"*", b"/readyz", b"/livez", b"/status", b"/openapi.json", b"//", b"/%00", b"/%ff%fe", b"", b"?", b"#",
    b"http://x/", b"http://x", b"http://x?a=1", b"http://[::1]:80/", b"http://", b"http://[", b"x:443",
    b"/?available_when_donor=1", b"/?available_when_donor=%ff", b"/?max_recv_queue=99999999999999999999",
    b"/readyz?a&b&c", b"/\xc3\xa9", b"/?" + b"&" * 2000, b"/" + b"a" * 7000,
]  # fmt: skip
_REQUESTS = [
    *REQUESTS.values(),
    *(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n" for target in _TARGETS),
]
_SPLICES = [
    b"\r\n", b"\r", b"\n", b"\0", b" ", b"\r\n\r\n", *b"% \xff \x80 : ? HTTP/1.1 \x16\x03\x01".split(b" "),
    b"\r\nContent-Length: 5\r\n", b"\r\nContent-Length: -1\r\n", b"\r\nTransfer-Encoding: chunked\r\n",
]  # fmt: skip


def mutated(chance: random.Random) -> bytes:
    """Take a request that a load balancer sends, or one for an odd target, and spoil it."""
    request = bytearray(chance.choice(_REQUESTS))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(request) + 1)
        match chance.randrange(5):
            case 0:
                request[at : at + 1] = chance.randbytes(1)
            case 1:
                request[at:at] = chance.choice(_SPLICES)
            case 2:
                del request[at : at + chance.randrange(1, 10)]
            case 3:
                request[at:at] = request[: chance.randrange(len(request) + 1)]
            case 4:
                request[at:at] = chance.randbytes(chance.randrange(1, 20))
    return bytes(request)


def requests(seed: int) -> Iterator[bytes]:
    """Return all requests, the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(REQUESTS_SENT):
        match chance.randrange(10):
            case 0:
                yield chance.randbytes(chance.randrange(1, 200))
            case 1:
                yield chance.choice(_REQUESTS)
            case _:
                yield mutated(chance)


def knows_methods(request: bytes) -> bool:
    """Whether a 405 may be meant: only the endpoints behind the health check know of methods."""
    return any(path.encode() in request for path in APPLICATION_PATHS)


async def ask(port: int, request: bytes, *, half_close: bool = True) -> bytes:
    """Send a request, and the end of it unless told otherwise; read until the server closes."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(request)
        if half_close:
            writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ask_all(port: int) -> tuple[Counter[bytes], list[tuple[bytes, bytes]]]:
    """Send all requests, many at a time, a health check after every hundredth; return statuses and
    what was wrong.
    """
    seen: Counter[bytes] = Counter()
    wrong: list[tuple[bytes, bytes]] = []
    numbered = enumerate(requests(SEED))

    async def ask_one_after_the_other() -> None:
        for number, request in numbered:
            # Without the end of it the server may wait for more until its deadline: not each time.
            answer = await ask(port, request, half_close=number % 100 != 50)
            # A request may hold further ones.
            given = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
            seen.update(given or [b"none"])
            allowed = {
                b"200",
                b"400",
                b"404",
                b"503",
                *([b"405"] if knows_methods(request) else []),
            }
            if not set(given) <= allowed or (answer and not answer.startswith(b"HTTP/1.1 ")):
                wrong.append((request, answer))
            if number % 100 == 0:
                check = await ask(port, b"GET / HTTP/1.0\r\n\r\n")
                if not check.startswith(b"HTTP/1.1 200 OK\r\n"):
                    wrong.append((b"an honest check", check))

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(ask_one_after_the_other() for _ in range(AT_ONCE)))
    return seen, wrong


@pytest.mark.long
def test_20000_random_requests_are_answered_or_closed_and_change_nothing(
    services: Services, node: FakeMySQL
) -> None:
    # The node runs in this process, which is busy: what it is late with is no fault of the
    # requests.
    service = services.beside(node, CLUSTERCHECK_DEADLINE="10")
    descriptors = service.process.descriptors
    # The log may come later than the answer.
    wait_for("the log", lambda: "reason=synced" in service.log.read_text(), seconds=10)
    log = service.log.read_text()
    seen, wrong = asyncio.run(ask_all(service.port))
    assert wrong[:5] == []
    assert seen.total() >= REQUESTS_SENT
    # Every kind of answer was provoked.
    assert seen.keys() >= {b"200", b"400", b"404", b"none"}, seen
    assert service.log.read_text() == log
    # A login of its own may be under way.
    wait_for("the descriptors", lambda: service.process.descriptors <= descriptors, seconds=10)
    assert service.status()["reason"] == "synced"
