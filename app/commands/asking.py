"""Asks running services over HTTP, all at once. The time limit includes the lookup of a host name."""

import asyncio
import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, parse_headers

from app.commands.targets import Target
from app.database.faults import os_words
from app.database.resolver import Resolver, connect_to_first

OTHER_PROGRAM = "something other than clustercheckd answers there"

_LIMIT_BYTES = 1 << 20
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (?P<status>[0-9]{3})( [^\r\n]*)?\r\n")


class NoAnswerError(Exception):
    """A service gave no answer. The message is a part of a line."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer with all its headers. headers: by name, in any case."""

    status: int
    headers: Message
    body: bytes


def ask_all(targets: Sequence[Target], path: str, seconds: float) -> list[Reply | NoAnswerError]:
    """Send each service a request for path, and return their replies in the same order."""

    async def asking() -> list[Reply | NoAnswerError]:
        return await asyncio.gather(*(_ask(target, path, seconds) for target in targets))

    return asyncio.run(asking())


async def _ask(target: Target, path: str, seconds: float) -> Reply | NoAnswerError:
    try:
        async with asyncio.timeout(seconds):
            received = await _received(target, path)
    except TimeoutError:
        return NoAnswerError(f"no answer within {seconds:g} s")
    except UnicodeError:
        return NoAnswerError("not a valid host name")
    except OSError as fault:
        return NoAnswerError(os_words(fault))
    if not received:
        return NoAnswerError("closed the connection: check CLUSTERCHECK_ALLOW_FROM there")
    return _parsed(received) or NoAnswerError(OTHER_PROGRAM)


async def _received(target: Target, path: str) -> bytes:
    reader, writer = await connect_to_first(await Resolver().addresses(target.host), target.port)
    received = b""
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            while len(received) < _LIMIT_BYTES and (chunk := await reader.read(_LIMIT_BYTES)):
                received += chunk
    finally:
        writer.transport.abort()
    return received


def _parsed(received: bytes) -> Reply | None:
    """Parse an HTTP answer. Return None if it is none."""
    head, end, body = received.partition(b"\r\n\r\n")
    found = _STATUS_LINE.match(head + b"\r\n")
    if found is None or not end:
        return None
    try:
        headers = parse_headers(io.BytesIO(head[found.end() :] + b"\r\n\r\n"))
    except HTTPException:
        return None
    return Reply(int(found["status"]), headers, body)
