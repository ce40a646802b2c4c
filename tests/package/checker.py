"""Sends health checks at a fixed rate: `python -m tests.package.checker PORT PER-SECOND`.

Like several load balancers, it opens a new connection for each, whether or not earlier ones have been answered. When
standard input ends, it stops and prints the answers as JSON:
{"answers": {"HTTP/1.1 200 OK": 1234}, "slowest_seconds": 0.1}.
"""

import json
import socket
import sys
import threading
import time
from collections import Counter

from harness.ports import LOOPBACK

_ANSWER_SECONDS = 10.0
_HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"


def main(port: int, per_second: float) -> None:
    """Send health checks until standard input ends, then print the answers."""
    seen: Counter[str] = Counter()
    slowest = [0.0]
    ended = threading.Event()
    checks: list[threading.Thread] = []

    def check() -> None:
        began = time.monotonic()
        answer = _ask(port)
        seen[answer] += 1
        slowest.append(time.monotonic() - began)

    def checking() -> None:
        begun = time.monotonic()
        while not ended.wait(max(0.0, begun + len(checks) / per_second - time.monotonic())):
            checks.append(threading.Thread(target=check))
            checks[-1].start()

    clock = threading.Thread(target=checking)
    clock.start()
    sys.stdin.read()
    ended.set()
    for thread in (clock, *checks):
        thread.join()
    sys.stdout.write(json.dumps({"answers": seen, "slowest_seconds": max(slowest)}))


def _ask(port: int) -> str:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(_HEALTH_CHECK)
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError as fault:
        return repr(fault)
    return answer.partition(b"\r\n")[0].decode()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
