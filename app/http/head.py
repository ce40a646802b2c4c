"""Reads the head of one request: bytes in, a request or what is wrong with it out.

A client may send, each line with LF or CRLF at its end:

1. A PROXY header, version 1 or 2. It is skipped: nothing in it is believed.
2. Empty lines (RFC 9112, 2.2).
3. The request line: METHOD TARGET HTTP/VERSION. Any token is a method. Without a target or without
   its slash, the path is meant from / on. Without a version, it is HTTP/0.9.
4. Header fields, which decide nothing, and an empty line. What follows is not read.
"""

import re
from functools import lru_cache
from typing import NamedTuple

REQUEST_BYTES = 8192
"""How long the head of a request may be."""

WORD_BYTES = 512
"""How long a word of the request line may be. To decode more would take longer than the answer."""

CAUSES = {
    "tls": "the client speaks TLS, and this port plain HTTP",
    "http2": "the client speaks HTTP/2, and this port HTTP/1",
    "too-long": f"the request has over {REQUEST_BYTES} bytes, or a word of it {WORD_BYTES}",
    "proxy-header": "the PROXY header has no end",
    "no-request": "this is no HTTP request",
}
"""What is wrong with a request, and for a human."""


class Request(NamedTuple):
    """A request. path: with any percent-encoding; empty if the client has sent nothing."""

    path: str
    query: bytes = b""
    is_head: bool = False


# HAProxy's proxy-protocol.txt, 2.1 and 2.2.
_PROXY_V1 = b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"
_PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n"

# An expression reads one word here, and splits it nowhere: one that could cut a run of bytes in two
# places would cost the square of its length.
_METHOD = re.compile(rb"[\w!#$%&'*+.^`|~-]+")
_VERSION = re.compile(rb"HTTP/[0-9.]+", re.IGNORECASE)
_TLS_HANDSHAKE = b"\x16"  # RFC 8446, 5.1
_HTTP2_PREFACE = b"PRI * HTTP/2"  # RFC 9113, 3.4


# A load balancer asks the same again and again.
@lru_cache(maxsize=64)
def read_head(sent: bytes, *, ended: bool = False) -> Request | str | None:
    """Return the request, or what is wrong with it (see `CAUSES`); None if that is not known yet.

    Whatever a client sends after that does not change it. sent: all of it so far, of which more
    than `REQUEST_BYTES` and one are not needed. ended: no more will be waited for.
    """
    head = sent[:REQUEST_BYTES]
    start = _end_of_proxy_header(head)
    asked = None
    if start is not None:
        if head.startswith(_TLS_HANDSHAKE, start):
            return "tls"
        line, newline, fields = head[start:].lstrip(b"\r\n").partition(b"\n")
        if newline:
            asked = _request_of(line)
            fields = newline + fields
            is_whole = b"\n\n" in fields or b"\n\r\n" in fields
            if is_whole or isinstance(asked, str):
                return asked
    if len(sent) > REQUEST_BYTES:
        return "too-long"
    if asked or not ended:
        return asked if ended else None
    if not head[start:].strip():
        return Request("")
    return (
        "proxy-header" if start is None or head.startswith(b"PROXY ") else "no-request"
    )


def _end_of_proxy_header(head: bytes) -> int | None:
    """Return where a PROXY header ends, or 0 without one; None if that is not known yet."""
    if _PROXY_V2.startswith(head[: len(_PROXY_V2)]):
        end = 16 + int.from_bytes(head[14:16])
        return end if end <= len(head) else None
    return head.find(b"\n") + 1 if head.startswith(_PROXY_V1) else 0


def _request_of(line: bytes) -> Request | str:
    if line.startswith(_HTTP2_PREFACE):
        return "http2"
    # At any blank (RFC 9112, 3).
    method, *others = words = line.split(None, 3) or [b""]
    if max(map(len, words)) > WORD_BYTES:
        return "too-long"
    if others and _VERSION.fullmatch(others[-1]):
        del others[-1]
    if not _METHOD.fullmatch(method) or len(others) > 1:
        return "no-request"
    target = b"".join(others)
    path, _, query = target.partition(b"#")[0].partition(b"?")
    scheme, _, rest = path.partition(b"//")
    host, _, proxied = rest.partition(b"/")
    # What a proxy asks for (RFC 9112, 3.2.2): http://db_1:9200/
    is_proxied = host and scheme.lower() in (b"http:", b"https:")
    name = (proxied if is_proxied else path.removeprefix(b"/")).decode("latin-1")
    # OPTIONS * means the server itself.
    return Request(
        "*" if target == b"*" else f"/{name}", query, method.upper() == b"HEAD"
    )
