"""Clients that no load balancer is: none of them costs another one its answer, or the service
anything that stays.
"""

import random
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest

from app.http.connections import DEADLINE_SECONDS
from app.http.head import REQUEST_BYTES, WORD_BYTES
from harness.costly import costliest_head
from harness.quota import quota, share_like
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, reset
from tests.http.conftest import HEALTH_CHECK
from tests.http.test_metrics import wait_until_in_sync
from tests.measured import done_within, for_seconds, let_pass, record, within

PATIENCE_SECONDS = 20
MOST_SENT_BYTES = 10 << 20

HOSTILE = {
    "a health check that is reset, as HAProxy does": HEALTH_CHECK,
    "silence": b"",
    "half a request line": b"GET / HT",
    "an endless target": b"GET /" + b"a" * 100_000,
    "endless headers": b"GET / HTTP/1.1\r\n" + b"X-Header: value\r\n" * 10_000,
    "one endless header": b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000,
    "garbage": random.Random(1).randbytes(3000),
    "a TLS greeting": bytes.fromhex("16030100c2010000be0303")
    + random.Random(2).randbytes(190),
    "half a PROXY header": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff" + bytes(9000),
    "an upgrade to HTTP/2": (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n"
    ),
    "pipelined checks": HEALTH_CHECK * 100,
    "a body that is announced": b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n",
    "a large body": b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    + bytes(1_000_000),
    "chunks without end": (
        b"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"5\r\nhello\r\n" * 10_000
    ),
    "a chunk of absurd size": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
}

COSTLY_REQUESTS = 220
COSTLY = {
    "as many escapes as a query may have": b"GET /?"
    + b"%41" * (WORD_BYTES // 3 - 1)
    + b" HTTP/1.0\r\n\r\n",
    "as many parameters as a query may have": b"GET /?"
    + b"a&" * (WORD_BYTES // 2 - 1)
    + b" HTTP/1.0\r\n\r\n",
    "8 KiB of header fields": b"GET / HTTP/1.0\r\n" + b"a:b\r\n" * 1600 + b"\r\n",
    "8 KiB of chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\nx\r\n" * 1350,
    "/status": b"GET /status HTTP/1.0\r\n\r\n",
    "/metrics": b"GET /metrics HTTP/1.0\r\n\r\n",
}


def connect_hostile(service: Service, data: bytes = b"") -> socket.socket:
    """Connect, and send as much of data as the server takes at once."""
    connection = service.connect()
    connection.setblocking(False)  # noqa: FBT003 (socket's own signature)
    with suppress(OSError):
        connection.send(data)
    return connection


def has_ended(connection: socket.socket) -> bool:
    """Whether the server has closed a connection; reads what it answered."""
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def try_a_health_check(service: Service) -> float:
    """Check that an honest health check gets its verdict; return the seconds it took."""
    began = time.monotonic()
    answer = service.send(HEALTH_CHECK)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
    assert answer.endswith(b"Percona XtraDB Cluster Node is synced.\r\n")
    return time.monotonic() - began


def check_nothing_is_left(service: Service, descriptors: int) -> None:
    """Check that the descriptors are back, and that the log says nothing but how it began."""
    wait_for(
        "the descriptors to be closed",
        lambda: service.process.descriptors <= descriptors,
        seconds=PATIENCE_SECONDS,
    )
    # Without a descriptor, it could not log in again meanwhile.
    lines = [
        line
        for line in service.log.read_text().splitlines()
        if " login " not in line and " malformed request " not in line
    ]
    assert len(lines) == 2, lines[:20]


def test_hostile_clients_delay_no_health_check_and_are_closed_in_time(
    synced: Service,
) -> None:
    # Only then does it have all its sessions.
    wait_until_in_sync(synced)
    before = synced.process.descriptors
    with ExitStack() as exits:
        hostile = {}
        for kind, data in (
            *HOSTILE.items(),
            ("a trickle", b"GET / HTTP/1.1\r\nX-Slow: "),
        ):
            hostile[kind] = [
                exits.enter_context(connect_hostile(synced, data)) for _ in range(5)
            ]
            within(f"a health check beside {kind}", try_a_health_check(synced), 1)
            reset(connect_hostile(synced, data))

        def still_open() -> list[str]:
            for connection in hostile["a trickle"]:
                with suppress(OSError):
                    connection.send(b"z")
            return [
                kind
                for kind, connections in hostile.items()
                if not all(map(has_ended, connections))
            ]

        with done_within("all closed", DEADLINE_SECONDS + 1):
            wait_for(
                "all to be closed",
                lambda: not still_open(),
                seconds=PATIENCE_SECONDS,
            )
    check_nothing_is_left(synced, before)


def test_of_a_thousand_that_a_client_has_queued_few_are_answered(
    synced: Service,
) -> None:
    answered = 0
    with ExitStack() as exits:
        # It looks at its queue only while it has a client.
        exits.enter_context(connect_hostile(synced))
        try_a_health_check(synced)
        with synced.process.paused():
            queued = [
                exits.enter_context(
                    socket.create_connection(
                        (synced.address, synced.port), 10, ("127.0.0.2", 0)
                    )
                )
                for _ in range(1000)
            ]
            for connection in queued:
                connection.sendall(HEALTH_CHECK)
            # It is time to look when it goes on.
            let_pass(0.2)
        try_a_health_check(synced)
        for connection in queued:
            with suppress(ConnectionResetError):
                answered += connection.recv(8) == b"HTTP/1.1"
    assert answered < 100


FLOOD = """
import socket, sys, time
began, sent, kept = time.monotonic(), 0, []
port, rate, seconds = map(int, sys.argv[1:])
while (now := time.monotonic() - began) < seconds:
    while sent < now * rate:
        flooding = socket.socket()
        flooding.setblocking(False)
        flooding.bind(("127.0.0.2", 0))
        flooding.connect_ex(("127.0.0.1", port))
        try:
            flooding.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
        except OSError:
            pass
        kept = [*kept[-99:], flooding]
        sent += 1
    time.sleep(0.001)
"""


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize(("share", "bound"), [(0.25, 1), (0.17, 2)])
def test_a_flood_from_one_address_beside_a_start_takes_no_node_out(
    node: FakeMySQL, services: Services, share: float, bound: float
) -> None:
    share = share_like(share)
    service = services.beside(node)
    flood = (sys.executable, "-c", FLOOD, str(service.port), "3000", "10")
    slowest = 0.0
    with quota(service.process.pid, share), subprocess.Popen(flood) as flooding:
        while flooding.poll() is None:
            slowest = max(slowest, try_a_health_check(service))
            time.sleep(0.1)
    # HAProxy waits for a second, checks again after 0.1 s, and takes a node out after another one.
    within(f"a health check at {share:.3f} of a core", slowest, bound)


@pytest.mark.long
@pytest.mark.alone
def test_the_costliest_heads_of_another_client_cost_no_health_check(
    node: FakeMySQL, services: Services
) -> None:
    service = services.beside(node)
    wait_until_in_sync(service)
    head = costliest_head()
    with quota(service.process.pid, share_like(0.25)), ExitStack() as others:
        for number, _ in enumerate(for_seconds(10.0)):
            if number % 2 == 0:
                # No two are the same: the service remembers the latest.
                varied = head[:-16] + b"%08d" % number + head[-8:]
                others.enter_context(connect_hostile(service, varied))
            within("a health check", try_a_health_check(service), 1)
            let_pass(0.25)


def cpu_seconds_of_a_burst(service: Service, request: bytes) -> float:
    """Return the CPU time that a request takes the service: many at once, with a health check behind
    them.
    """
    before = service.process.cpu_seconds
    with ExitStack() as exits:
        burst = [
            exits.enter_context(connect_hostile(service, request))
            for _ in range(COSTLY_REQUESTS)
        ]
        try_a_health_check(service)
        wait_for("the end of each", lambda: all(map(has_ended, burst)), seconds=10)
    return service.process.cpu_seconds - before


@pytest.mark.long
@pytest.mark.parametrize("kind", COSTLY)
def test_no_request_takes_more_than_a_few_times_the_work_of_a_health_check(
    synced: Service, kind: str
) -> None:
    assert len(COSTLY[kind]) <= REQUEST_BYTES
    costly, checks = zip(
        *(
            [
                cpu_seconds_of_a_burst(synced, one)
                for one in (COSTLY[kind], HEALTH_CHECK)
            ]
            for _ in range(10)
        ),
        strict=True,
    )
    times = sum(costly) / sum(checks)
    record(f"{kind}: {times:.1f} times the work of health checks")
    # FastAPI makes the documents.
    assert times <= (8 if kind.startswith("/") else 5)


def test_a_request_over_a_limit_gets_a_400_that_names_the_limits(
    synced: Service,
) -> None:
    target, header = b"GET /%s HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: %s\r\n\r\n"
    at_most = header % (b"y" * (REQUEST_BYTES - len(header) + 2))
    assert len(at_most) == REQUEST_BYTES
    assert synced.send(at_most).startswith(b"HTTP/1.1 200 OK\r\n")
    assert synced.send(target % (b"a" * (WORD_BYTES - 1))).startswith(b"HTTP/1.1 404 ")
    for request in (
        header % (b"y" * REQUEST_BYTES),
        target % (b"a" * WORD_BYTES),
        target % (b"?" + b"a" * WORD_BYTES),
    ):
        answer = synced.send(request)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert answer.endswith(b"has over 8192 bytes, or a word of it 512\r\n")


def test_what_follows_a_request_is_read_but_not_without_bound(synced: Service) -> None:
    with synced.connect() as client, synced.connect() as flooding:
        # An answer is whole even if the client sends first, and reads then.
        client.sendall(HEALTH_CHECK + bytes(100_000))
        assert b"is synced" in client.recv(65536)
        flooding.sendall(HEALTH_CHECK)
        sent, began = 0, time.monotonic()
        with suppress(OSError):
            flooding.settimeout(1.0)
            while time.monotonic() < began + DEADLINE_SECONDS:
                sent += flooding.send(bytes(65536))
        record(f"{sent >> 10} KiB in all, most of them in the buffers of both kernels")
        assert sent < MOST_SENT_BYTES


@pytest.mark.long
def test_hostile_clients_leave_no_memory_behind(synced: Service) -> None:
    def grown_kib() -> int:
        """Say how much 2,000 more of them add: kibibytes each if anything of a connection stayed."""
        at_first = synced.process.resident_kib
        for _ in range(25):
            for data in HOSTILE.values():
                for _ in range(4):
                    reset(connect_hostile(synced, data))
            # All that was sent has been dealt with once a later connection is answered.
            try_a_health_check(synced)
        return synced.process.resident_kib - at_first

    # Only then does it have all its sessions.
    wait_until_in_sync(synced)
    before = synced.process.descriptors
    # Buffers and caches grow to their size first; what leaks never ends to grow.
    grown = [grown_kib()]
    while grown[-1] >= 512 and len(grown) < 8:
        grown.append(grown_kib())
    assert grown[-1] < 512, grown
    check_nothing_is_left(synced, before)


def test_it_recovers_from_having_no_descriptor_left(
    node: FakeMySQL, services: Services
) -> None:
    service = services.beside(node)
    limits = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
    before = service.process.descriptors
    resource.prlimit(
        service.process.pid, resource.RLIMIT_NOFILE, (before + 2, limits[1])
    )
    with ExitStack() as crowd:
        for _ in range(300):
            crowd.enter_context(connect_hostile(service))
        wait_for(
            "the descriptors to be used up",
            lambda: service.process.descriptors >= before + 1,
        )
        began, cpu_seconds = time.monotonic(), service.process.cpu_seconds
        # The deadline of the silent ones gives them back, though their clients stay.
        wait_for("the descriptors back", lambda: service.process.descriptors <= before)
        took_seconds = time.monotonic() - began
        assert service.process.cpu_seconds - cpu_seconds < 0.5 * took_seconds + 0.2
        try_a_health_check(service)
        check_nothing_is_left(service, before)
