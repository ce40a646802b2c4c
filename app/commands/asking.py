"""Asks running services for their /status.

A service has `SECONDS` in all: for the lookup of its name, to connect, and to answer. Any program
may answer there: clustercheckd reads at most `_MOST_BYTES`, and passes no control characters to a
terminal.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from app.settings.address import MOST_PORT
from app.settings.files import SettingsError
from app.settings.settings import Settings
from app.text import host_and_port, one_line
from app.verdict.node_state import NOT_A_NUMBER

SECONDS = 2.0
_MOST_BYTES = 1 << 18
_NO_ANSWER = f"no answer within {SECONDS:g} s"
_ANOTHER = "something other than clustercheckd answers there: check CLUSTERCHECK_PORT"
_TYPED = re.compile(
    r"(\[(?P<bracketed>[^\s\[\]/@,]+)\]|(?P<host>[^\s:\[\]/@,]+))(:(?P<port>[0-9]{1,9}))?"
)
# Where to connect if the service listens on every address.
_LOOPBACK = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (as it is configured)


@dataclass(frozen=True)
class Service:
    """The address of a service. name: for output. hint: what to look at if it does not answer."""

    name: str
    host: str
    port: int
    hint: str = ""


_Line = Annotated[str, AfterValidator(one_line)]
_Count = Annotated[int, Field(ge=NOT_A_NUMBER, le=0x7FFF_FFFF_FFFF_FFFF)]


class Finding(BaseModel, frozen=True, strict=True):
    """A verdict, or a failure, as a service reports it."""

    available: bool = False
    reason: _Line
    detail: _Line | None = None

    @property
    def words(self) -> str:
        """Return the reason and the detail."""
        return f"{self.reason}: {self.detail or '-'}"


class Node(BaseModel, frozen=True, strict=True):
    """What a service knows of its node."""

    wsrep_node_name: _Line | None = None
    wsrep_local_state_comment: _Line | None = None
    wsrep_cluster_status: _Line | None = None
    wsrep_cluster_size: _Count | None = None
    wsrep_local_recv_queue: _Count | None = None
    wsrep_last_committed: _Count | None = None
    sync_wait_seconds: Annotated[float, Field(lt=1e19)] | None = None


class Status(Finding, frozen=True, strict=True):
    """The parts of /status that commands read."""

    available: bool
    draining: bool = False
    since: str = ""
    otherwise: Finding | None = None
    login_failure: Finding | None = None
    node: Annotated[Node, BeforeValidator(lambda node: node or {})] = Node()


_NO_STATUS = Status(available=False, reason="-")


@dataclass(frozen=True)
class Reply:
    """A service's /status, also as its JSON, or a few words that say why there is none."""

    service: Service
    status: Status = _NO_STATUS
    document: Any = None
    fault: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in one word, as `Verdict.word`."""
        if self.fault:
            return "no answer"
        if self.status.available:
            return "available"
        return "draining" if self.status.draining else "NOT available"

    @property
    def reason(self) -> str:
        """Why the node is not available, or why there is no answer."""
        return self.fault or self.status.words


def own_service(settings: Settings) -> Service:
    """Return the address on which the service with these settings answers on this host."""
    host = _LOOPBACK.get(settings.clustercheck_host, settings.clustercheck_host)
    port = settings.clustercheck_port
    hint = "; run: systemctl status clustercheckd; CLUSTERCHECK_PORT must be its port"
    return Service(host_and_port(host, port), host, port, hint)


def service_at(text: str, default_port: int) -> Service:
    """Parse host, host:port, an IPv6 address or [address]:port. Raises `SettingsError`."""
    # An IPv6 address without brackets cannot have a port.
    bare_ipv6 = text.count(":") > 1 and "[" not in text
    typed = _TYPED.fullmatch(f"[{text}]" if bare_ipv6 else text)
    port = int(typed["port"] or default_port) if typed else 0
    if typed is None or not 1 <= port <= MOST_PORT:
        # Before the @ of a URL may be a password.
        shown = "" if "@" in text else f"{one_line(text)!r} is "
        raise SettingsError(f"status: {shown}not an address; examples: db1:9200 [fd00::1]:9200")
    return Service(text, typed["bracketed"] or typed["host"], port)


def ask(services: Sequence[Service]) -> list[Reply]:
    """Ask all at once; return their answers in the same order after at most `SECONDS`."""
    answers = [Reply(service, fault=f"{_NO_ANSWER}{service.hint}") for service in services]

    def ask_one(index: int) -> None:
        answers[index] = _answer(services[index])

    # Nothing can stop the lookup of a name: such a thread is left behind.
    threads = [
        threading.Thread(target=ask_one, args=(index,), daemon=True)
        for index in range(len(services))
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return list(answers)


def _answer(service: Service) -> Reply:
    try:
        document = json.loads(_received(service).decode(errors="replace"))
        return Reply(service, Status.model_validate(document), document)
    except UnicodeError:
        fault = "not a valid host name"
    except (ConnectionResetError, BrokenPipeError):
        fault = "closed the connection: check CLUSTERCHECK_ALLOW_FROM there"
    except OSError as error:
        # A timeout of ours has no such text.
        fault = f"{error.strerror or _NO_ANSWER}{service.hint}"
    except (ValueError, RecursionError):
        fault = _ANOTHER
    return Reply(service, fault=fault)


def _received(service: Service) -> bytes:
    """Return the body of an answer.

    Raises `OSError`, and the connection is closed at the latest after `SECONDS`.
    """
    end = time.monotonic() + SECONDS
    received = b""
    with socket.create_connection((service.host, service.port), SECONDS) as connection:
        connection.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            chunk = connection.recv(_MOST_BYTES)
            received += chunk
            if not received:
                # Closed before the request arrived: there was nothing unread to reset the
                # connection for.
                raise ConnectionResetError
            if not chunk or len(received) > _MOST_BYTES:
                return received.partition(b"\r\n\r\n")[2]
    raise TimeoutError
