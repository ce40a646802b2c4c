"""The floor of this stack: what uvicorn costs with an application that returns constant bytes.

    python -m bench.floor PORT ANSWER-BODY

uvloop, httptools, no access log, the same headers and body as clustercheckd's 200.
"""

import sys
from typing import TYPE_CHECKING

import uvicorn

from harness.ports import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


class Constant:
    """An ASGI application that answers every request alike."""

    def __init__(self, body: bytes) -> None:
        headers = [
            (b"content-type", b"text/plain"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-clustercheck-reason", b"synced"),
            (b"connection", b"close"),
        ]
        self._start: Message = {
            "type": "http.response.start",
            "status": 200,
            "headers": headers,
        }
        self._body: Message = {"type": "http.response.body", "body": body}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:  # noqa: ARG002 (ASGI's signature)
        """Answer."""
        await send(self._start)
        await send(self._body)


def main(port: int, body: bytes) -> None:
    """Serve until a signal stops it."""
    uvicorn.run(
        Constant(body),
        host=LOOPBACK,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        backlog=4096,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].encode())
