"""Every form of request a load balancer is known to send, as bytes on a real socket against the real server."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.ports import Ports
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services

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
    "absolute form": b"GET http://localhost:9200/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "absolute form without a path": b"GET http://db1:9200 HTTP/1.1\r\nHost: db1:9200\r\n\r\n",
    "absolute form with a query alone": b"GET http://db1:9200?available_when_donor=1 HTTP/1.1\r\nHost: db1\r\n\r\n",
    "absolute form with a query": b"GET HTTP://[::1]:9200/readyz?available_when_donor=0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "empty query": b"GET /? HTTP/1.0\r\n\r\n",
    "post": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
    "a method nobody uses": b"PROPFIND / HTTP/1.1\r\nHost: x\r\n\r\n",
    "expect": b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
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


@pytest.fixture(scope="module")
def unreachable(tmp_path_factory: pytest.TempPathFactory, ports: Ports) -> Iterator[Service]:
    """Run clustercheckd beside a database that is down, once for all that only ask it."""
    with ExitStack() as exits:
        yield Services(tmp_path_factory.mktemp("unreachable"), ports, exits).start()


@pytest.mark.parametrize("half_close", [False, True], ids=["whole", "half-closed"])
def test_every_form_gets_the_503(unreachable: Service, *, half_close: bool) -> None:
    for name, request in REQUESTS.items():
        answer = unreachable.send(request, half_close=half_close)
        assert answer, name
        check_answer(answer, b"HTTP/1.1 503 Service Unavailable", b"unreachable")
        assert answer.partition(b"\r\n\r\n")[2].startswith(b"Percona XtraDB Cluster Node is not synced.\r\n")


def test_head_gets_the_same_headers_and_no_body(unreachable: Service) -> None:
    get, head = (unreachable.send(method + b" / HTTP/1.1\r\nHost: x\r\n\r\n") for method in (b"GET", b"HEAD"))
    assert get.partition(b"\r\n\r\n")[0] == head.partition(b"\r\n\r\n")[0]
    assert head.endswith(b"\r\n\r\n")


def test_every_answer_says_connection_close_and_ends_the_connection(unreachable: Service) -> None:
    for target in ("/", "/?donor=1", "/livez", "/status", "/openapi.json", "/nothing"):
        for method in ("GET", "HEAD", "DELETE"):
            answer = unreachable.send(
                f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n".encode()
            )
            head = answer.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
            assert [line for line in head if line.startswith(b"connection:")] == [b"connection: close"], answer
    assert b"\r\nconnection: close\r\n" in unreachable.send(b"this is no request\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 503),
        ("OPTIONS", "/", 503),
        ("OPTIONS", "*", 503),
        ("HEAD", "/", 503),
        ("GET", "/readyz", 503),
        ("HEAD", "/readyz", 503),
        ("OPTIONS", "/readyz", 503),
        ("GET", "/?available_when_donor=1", 503),
        ("GET", "/readyz?max_recv_queue=5", 503),
        ("GET", "/?donor=1", 400),
        ("GET", "/readyz?available_when_donor=maybe", 400),
        ("GET", "/livez", 200),
        ("HEAD", "/livez", 200),
        ("OPTIONS", "/livez", 200),
        ("GET", "/status", 200),
        ("HEAD", "/status", 200),
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/readyz/", 404),
        ("GET", "/status/", 404),
        ("GET", "/docs", 404),
        ("GET", "/favicon.ico", 404),
        ("OPTIONS", "/nothing", 404),
        ("GET", "//", 404),
        ("GET", "http://db1:9200/status", 200),
        ("GET", "http://db1:9200/nothing", 404),
        ("GET", "http://db1:9200/?x", 400),
        ("GET", "/%2e%2e/etc", 404),
    ],
)
def test_route(unreachable: Service, method: str, path: str, status: int) -> None:
    assert unreachable.get(path, method=method).status == status


def test_a_404_names_the_endpoints(unreachable: Service) -> None:
    reply = unreachable.get("/metricz")
    assert reply.body == "not found: the endpoints are /, /readyz, /livez, /status, /metrics, /openapi.json\r\n"


def test_a_400_names_the_parameter(unreachable: Service) -> None:
    reply = unreachable.get("/?available_when_donor=2")
    assert (reply.status, reply.body) == (400, "available_when_donor must be 0 or 1, not '2'\r\n")


def test_status_tells_what_is_known(unreachable: Service) -> None:
    status = unreachable.status()
    assert (status["available"], status["reason"], status["node"]) == (False, "unreachable", None)
    assert status["failure"]["reason"] == "unreachable"
    assert status["policy"]["available_when_donor"] is False
    assert [change["reason"] for change in status["changes"]] == ["unreachable"]


@pytest.mark.parametrize("path", ["/status", "/metrics"])
def test_a_document_is_made_once_a_poll(unreachable: Service, path: str) -> None:
    bodies = [unreachable.get(path).body for _ in range(10)]
    assert len(set(bodies)) < len(bodies)
    wait_for("the document of the next poll", lambda: unreachable.get(path).body != bodies[-1])
