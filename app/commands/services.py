"""Asks running services for their /status, each in a thread of its own.

A service has `SECONDS` in all: for the lookup of its name, to connect, and to answer. Any program may answer there:
clustercheckd reads at most `_MOST_BYTES`, and passes no control characters to a terminal.
"""

import json
import math
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.node_state import one_line
from app.settings import MOST_PORT, Settings
from app.settings_error import SettingsError

SECONDS = 2.0
_PAUSE_SECONDS = 1.0
_MOST_BYTES = 1 << 18
_NO_ANSWER = f"no answer within {SECONDS:g} s"
_ANOTHER = "something other than clustercheckd answers there: check CLUSTERCHECK_PORT"
_TYPED = re.compile(r"(\[(?P<bracketed>[^\s\[\]/@,]+)\]|(?P<host>[^\s:\[\]/@,]+))(:(?P<port>[0-9]{1,9}))?")
# Where to connect if the service listens on every address.
_LOOPBACK = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (as it is configured)


@dataclass(frozen=True, slots=True)
class Service:
    """The address of a service. name: for output. hint: what to look at if it does not answer."""

    name: str
    host: str
    port: int
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON of one service's /status, or a few words that say why there is none."""

    service: Service
    status: Mapping[str, Any] | None = None
    fault: str = ""

    @property
    def available(self) -> bool:
        """Whether the node may take traffic."""
        return self.status is not None and self.status["available"]

    @property
    def verdict(self) -> str:
        """The verdict in one word, as `Verdict.word`."""
        if self.status is None:
            return "no answer"
        return "available" if self.available else "draining" if self.status.get("draining") else "NOT available"

    @property
    def reason(self) -> str:
        """Why the node is not available, or why there is no answer."""
        return self.fault if self.status is None else why(self.status)


def text_in(document: Mapping[str, Any], name: str) -> str:
    """Return a text of a document as one printable line; `-` if there is none."""
    value = document.get(name)
    return one_line(value) if isinstance(value, str) and value else "-"


def part_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object in a document; an empty one if there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def why(document: Mapping[str, Any]) -> str:
    """Return the reason and the detail of a document, or of a failure in it."""
    return f"{text_in(document, 'reason')}: {text_in(document, 'detail')}"


def own_service(settings: Settings) -> Service:
    """Return the address on which the service with these settings answers on this host."""
    host = _LOOPBACK.get(settings.clustercheck_host, settings.clustercheck_host)
    port = settings.clustercheck_port
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Service(name, host, port, "; run: systemctl status clustercheckd; CLUSTERCHECK_PORT must be its port")


def service_at(text: str, default_port: int) -> Service:
    """Parse host, host:port, an IPv6 address or [address]:port. Raises `SettingsError`."""
    # An IPv6 address without brackets cannot have a port.
    found = _TYPED.fullmatch(f"[{text}]" if text.count(":") > 1 and "[" not in text else text)
    port = int(found["port"] or default_port) if found else 0
    if found is not None and port == default_port == 0:
        raise SettingsError(f"status: CLUSTERCHECK_PORT is 0: write the port, as in {text}:9200")
    if found is None or not 1 <= port <= MOST_PORT:
        # Before the @ of a URL may be a password.
        shown = "" if "@" in text else f"{one_line(text)!r} is "
        raise SettingsError(f"status: {shown}not an address; examples: db1 db1:9200 [fd00::1]:9200")
    return Service(text, found["bracketed"] or found["host"], port)


def ask(services: Sequence[Service]) -> list[Answer]:
    """Ask all at once; return their answers in the same order after at most `SECONDS`."""
    return next(keep_asking(services))


def keep_asking(services: Sequence[Service]) -> Iterator[list[Answer]]:
    """Ask each service every second, whatever the others do, and yield the latest answers every second.

    The first come when all have answered, or after `SECONDS`.
    """
    none = [Answer(service, fault=f"{_NO_ANSWER}{service.hint}") for service in services]
    latest = [(-math.inf, answer) for answer in none]
    answered = [threading.Event() for _ in services]
    stopped = threading.Event()

    def ask_one(index: int) -> None:
        while not stopped.is_set():
            answer = _answer(services[index])
            latest[index] = (time.monotonic(), answer)
            answered[index].set()
            stopped.wait(_PAUSE_SECONDS)

    # Nothing can stop the lookup of a name: such a thread is left behind.
    for index in range(len(services)):
        threading.Thread(target=ask_one, args=(index,), daemon=True).start()
    end = time.monotonic() + SECONDS
    for one in answered:
        one.wait(max(0.0, end - time.monotonic()))
    try:
        while True:
            oldest = time.monotonic() - _PAUSE_SECONDS - 2 * SECONDS
            yield [answer if at > oldest else no for (at, answer), no in zip(latest, none, strict=True)]
            time.sleep(_PAUSE_SECONDS)
    finally:
        stopped.set()


def _answer(service: Service) -> Answer:
    try:
        status = json.loads(_received(service).decode(errors="replace"))
        if isinstance(status["available"], bool) and isinstance(status["reason"], str):
            return Answer(service, status)
    except UnicodeError:
        return Answer(service, fault="not a valid host name")
    except (ConnectionResetError, BrokenPipeError):
        return Answer(service, fault="closed the connection: check CLUSTERCHECK_ALLOW_FROM there")
    except OSError as fault:
        # A timeout of ours has no such text.
        return Answer(service, fault=f"{fault.strerror or _NO_ANSWER}{service.hint}")
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    return Answer(service, fault=_ANOTHER)


def _received(service: Service) -> bytes:
    """Return the body of an answer. Raises `OSError`, and the connection is closed at the latest after `SECONDS`."""
    end = time.monotonic() + SECONDS
    received = b""
    with socket.create_connection((service.host, service.port), SECONDS) as connection:
        connection.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            chunk = connection.recv(_MOST_BYTES)
            received += chunk
            if not chunk or len(received) > _MOST_BYTES:
                return received.partition(b"\r\n\r\n")[2]
    raise TimeoutError
