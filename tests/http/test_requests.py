"""Every form of request a load balancer is known to send, as bytes on a real socket against the
real server.
"""

import re
import time

import pytest

from harness.ports import LOOPBACK
from harness.service import Service, read_to_end
from harness.waiting import wait_for
from tests.conftest import Services
from tests.measured import DisturbedError

REQUESTS = {
    "haproxy, option httpchk": b"OPTIONS / HTTP/1.0\r\n\r\n",
    "haproxy 2.4.0 and 3.0.0": b"OPTIONS / HTTP/1.0\r\ncontent-length: 0\r\n\r\n",
    "haproxy, httpchk GET": b"GET / HTTP/1.0\r\n\r\n",
    "haproxy, httpchk GET HTTP/1.1 without host": b"GET /readyz HTTP/1.1\r\nconnection: close\r\n\r\n",
    "haproxy, http-check send OPTIONS *": b"OPTIONS * HTTP/1.1\r\nhost: www\r\nconnection: close\r\n\r\n",
    "haproxy, send-state": (
        b"GET / HTTP/1.0\r\nx-haproxy-server-state: UP 1/3; address=10.0.0.1; port=3306; name=galera/node1; node=lb1;"
        b" weight=1/1; scur=-1/0; qcur=0\r\n\r\n"
    ),
    "kubelet": (
        b"GET /readyz HTTP/1.1\r\nHost: 10.1.2.3:9200\r\nUser-Agent: kube-health check/1.31\r\nAccept: */*\r\n"
        b"Connection: close\r\n\r\n"
    ),
    "keepalived": b"GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: 10.0.0.1:9200\r\n\r\n",
    "curl": b"GET / HTTP/1.1\r\nHost: localhost:9200\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n",
    "absolute form": b"GET http://db_1:9200/ HTTP/1.1\r\nHost: db_1\r\n\r\n",
    "absolute form with a query alone": b"GET http://db1:9200?available_when_donor=1 HTTP/1.1\r\nHost: db1\r\n\r\n",
    "absolute form with a query": b"GET HTTP://[::1]:9200/readyz?available_when_donor=0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "empty query": b"GET /? HTTP/1.0\r\n\r\n",
    "post": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
    "a method nobody uses": b"PROPFIND / HTTP/1.1\r\nHost: x\r\n\r\n",
    "expect": b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    "haproxy, check-send-proxy": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET / HTTP/1.0\r\n\r\n",
    "haproxy, check-send-proxy without an address": b"PROXY UNKNOWN\r\nOPTIONS / HTTP/1.0\r\n\r\n",
    "haproxy, send-proxy-v2": b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET / HTTP/1.0\r\n\r\n",
    "aws nlb": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x54"
    + bytes(84)
    + b"GET / HTTP/1.1\r\n\r\n",
    "blackbox_exporter's tcp prober, monit": b"GET / HTTP/1.0\n\n",
    "echo -e in bash": b"GET / HTTP/1.0\r\nHost: x\r\n\n",
    "haproxy, option httpchk get /": b"get / HTTP/1.0\r\n\r\n",
    "haproxy, option httpchk GET readyz": b"GET readyz HTTP/1.0\r\n\r\n",
    "haproxy, option httpchk PING": b"PING / HTTP/1.0\r\n\r\n",
    "haproxy, a length of its own": b"POST / HTTP/1.0\r\nContent-Length: 4\r\ncontent-length: 0\r\n\r\n",
    "f5": b"GET /\r\n",
    "haproxy, tcp-check send PING": b"PING\r\n",
    "chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    "a line that is no header field": b"GET / HTTP/1.1\r\nx\r\n : \0\r\n\r\n",
    "no empty line": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
}
MALFORMED = {
    "tls": b"\x16\x03\x01\0\xc2\x01\0\0\xbe\x03\x03" + bytes(190),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "too-long": b"GET / HTTP/1.0\r\nX: " + bytes(9000),
    "proxy-header": b"PROXY TCP4 192.0.2.1 ",
    "no-request": b"this is no request\r\n\r\n",
    "parameter": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET /?donor=1 HTTP/1.0\r\n\r\n",
}


def check_answer(answer: bytes, status_line: bytes, reason: bytes) -> None:
    """Check a whole answer, byte for byte where the bytes are promised."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == status_line
    headers = dict(line.split(b": ", 1) for line in lines[1:])
    assert headers == {
        b"content-type": b"text/plain",
        b"content-length": str(len(body)).encode(),
        b"connection": b"close",
        b"cache-control": b"no-store",
        b"x-clustercheck-reason": reason,
    }


@pytest.mark.parametrize("half_close", [False, True], ids=["whole", "half-closed"])
def test_every_form_gets_the_503(unreachable: Service, *, half_close: bool) -> None:
    for name, request in REQUESTS.items():
        answer = unreachable.send(request, half_close=half_close)
        assert answer, name
        check_answer(answer, b"HTTP/1.1 503 Service Unavailable", b"unreachable")
        assert answer.partition(b"\r\n\r\n")[2].startswith(
            b"Percona XtraDB Cluster Node is not synced.\r\n"
        )


def test_head_gets_the_same_headers_and_no_body(unreachable: Service) -> None:
    get, head = (
        unreachable.send(method + b" / HTTP/1.1\r\nHost: x\r\n\r\n")
        for method in (b"GET", b"HEAD")
    )
    assert get.partition(b"\r\n\r\n")[0] == head.partition(b"\r\n\r\n")[0]
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "targets"),
    [
        (
            503,
            "/ * /readyz /?available_when_donor=1 /readyz?max_recv_queue=5 http://db1:9200",
        ),
        (400, "/?donor=1 /readyz?available_when_donor=maybe http://db1:9200/?x"),
        (200, "/livez /status /metrics /openapi.json http://db1:9200/status"),
        (
            404,
            "GET /readyz/ /status/ /docs /favicon.ico /nothing // http://db1:9200/nothing /%2e%2e/etc",
        ),
    ],
)
def test_each_route_has_its_status_and_ends_the_connection(
    unreachable: Service, status: int, targets: str
) -> None:
    for target in targets.split():
        for method in ("GET", "HEAD", "OPTIONS", "delete"):
            request = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"
            answer = unreachable.send(request.encode()).decode()
            head = answer.partition("\r\n\r\n")[0].lower()
            assert head.startswith(f"http/1.1 {status} "), request
            assert re.findall(r"^connection: \w+", head, re.MULTILINE) == [
                "connection: close"
            ], request


def test_a_404_names_the_endpoints(unreachable: Service) -> None:
    endpoints = "/, /readyz, /livez, /status, /metrics, /openapi.json"
    assert (
        unreachable.get("/metricz").body
        == f"not found: the endpoints are {endpoints}\r\n"
    )


def test_any_path_gets_the_verdict_where_it_is_asked_for(services: Services) -> None:
    service = services.start(CLUSTERCHECK_ANY_PATH="1")
    for path, status, reason in (
        ("/nothing", 503, "unreachable"),
        ("/check?whatever=1", 503, "unreachable"),
        ("/readyz/", 503, "unreachable"),
        ("/livez", 200, ""),
        ("/status", 200, ""),
        ("/?x=1", 400, ""),
    ):
        reply = service.get(path)
        assert (reply.status, reply.reason) == (status, reason)
    counted = 'health_checks_total{path="other",status="503"} 3.0'
    assert counted in service.get("/metrics").body


@pytest.mark.parametrize("any_path", ["0", "1"])
def test_a_silent_client_gets_the_verdict_where_any_path_does(
    services: Services, any_path: str
) -> None:
    service = services.start(CLUSTERCHECK_ANY_PATH=any_path)
    for sent in (b"", b"\r\n", b"PROXY UNKNOWN\r\n") if any_path == "1" else (b"",):
        at_once = service.send(sent, half_close=True)
        began = time.monotonic()
        late = service.send(sent)
        took_seconds = time.monotonic() - began
        if any_path == "1":
            assert b"\r\nx-clustercheck-reason: unreachable\r\n" in at_once
            assert late == at_once
            assert took_seconds >= 0.5
        else:
            assert at_once == late == b""
            assert took_seconds >= 2
    with service.connect() as slow:
        time.sleep(0.3)
        slow.sendall(b"GET /?x=1 HTTP/1.0\r\n\r\n")
        answer = slow.recv(65536)
        if any_path == "1" and answer == late:
            raise DisturbedError("half a second had passed")
        assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_400_says_why(services: Services) -> None:
    service = services.start()
    why = {}
    for cause, sent in MALFORMED.items():
        answer = service.send(sent, half_close=cause == "proxy-header").decode()
        assert answer.startswith("HTTP/1.1 400 Bad Request\r\n"), cause
        why[cause] = (LOOPBACK, answer.partition("\r\n\r\n")[2].strip())

    def told() -> dict[str, tuple[str, str]]:
        latest = service.status()["connections"]["latest"]
        return {cause: (one["client"], one["detail"]) for cause, one in latest.items()}

    wait_for("all to be told", lambda: told() == why)
    closed = service.status()["connections"]["closed"]
    assert {cause: closed[cause] for cause in MALFORMED} == dict.fromkeys(MALFORMED, 1)
    log = service.log.read_text()
    assert "malformed request cause=tls client=127.0.0.1 count=1" in log
    assert log.count("malformed request") == 1
    assert "192.0.2.1" not in log


LARGE = b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)


@pytest.mark.parametrize("count", [50, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_answer_is_lost_by_a_reset(unreachable: Service, count: int) -> None:
    whole = unreachable.send(REQUESTS["curl"])
    assert whole.startswith(b"HTTP/1.1 503 ")
    for _ in range(count):
        assert unreachable.send(LARGE) == whole
        assert unreachable.send(REQUESTS["curl"] * 2) == whole
        assert unreachable.send(REQUESTS["curl"], half_close=True) == whole
        with unreachable.connect() as client:
            for _ in range(2):
                client.sendall(REQUESTS["curl"])
            assert read_to_end(client) == whole
