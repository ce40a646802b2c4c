"""Asks running services for their /status.

A service has `SECONDS` in all: for the lookup of its name, to connect, and to answer. Any program
may answer there: clustercheckd reads at most `_MOST_BYTES`, and passes no control characters to a
terminal.
"""

import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator
from pydantic_core import from_json

from app.settings.error import SettingsError
from app.settings.settings import LISTENING
from app.settings.source import Source
from app.text import host_and_port, one_line
from app.threads import in_thread
from app.verdict.node_state import NodeState
from app.verdict.rules import word_of

SECONDS = 2.0
_MOST_BYTES = 1 << 18
_MOST_MEMBERS = 64
REFUSED = os.strerror(errno.ECONNREFUSED)
"""The fault of a port on which nobody listens."""

_NO_ANSWER = f"no answer within {SECONDS:g} s"
_NOT_OURS = (
    "no clustercheckd that answers this host: check the port, and CLUSTERCHECK_ALLOW_FROM"
    " there"
)

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}[^\r\n]{0,40})")


class Address(NamedTuple):
    """Where a service listens. name: for output."""

    name: str
    host: str
    port: int


_Line = Annotated[str, AfterValidator(one_line)]


class Finding(BaseModel, frozen=True):
    """A verdict, or a failure, as a service reports it."""

    available: bool = False
    reason: _Line
    detail: _Line = "-"

    @property
    def words(self) -> str:
        """Return the reason and the detail."""
        return f"{self.reason}: {self.detail}"


class TurnedAway(BaseModel, frozen=True):
    """A client that got no verdict."""

    client: _Line
    at: AwareDatetime
    detail: _Line


class Connections(BaseModel, frozen=True):
    """The latest client that got no verdict, by cause."""

    latest: dict[_Line, TurnedAway] = {}


class ReloadOutcome(BaseModel, frozen=True):
    """How a service's latest reload ended. complaints: why it was refused, if it was."""

    at: AwareDatetime | None = None
    complaints: list[_Line] = []
    failure: Finding | None = None
    shut_out: list[_Line] = []
    env_file: _Line | None = None
    warnings: list[_Line] = []


class Setting(BaseModel, frozen=True):
    """What somebody has set, and where."""

    value: _Line
    source: _Line


class Answer(Finding, frozen=True):
    """The parts of a service's /status that commands read.

    document: all of it. fault: why there is none.
    """

    address: Address
    document: Any = None
    fault: str = ""

    available: bool
    draining: bool = False
    since: AwareDatetime | None = None
    also: list[Finding] = []
    otherwise: Finding | None = None
    login_failure: Finding | None = None
    settings: dict[_Line, Setting] = {}
    version: _Line | None = None
    pid: int | None = None
    last_reload: ReloadOutcome = ReloadOutcome()
    answered: dict[_Line, Finding] = {}
    connections: Connections = Connections()
    node: Annotated[NodeState, BeforeValidator(lambda node: node or {})] = NodeState()

    @property
    def members(self) -> list[str]:
        """The members' addresses by their index, as far as this one shows them.

        An arbitrator's is empty.
        """
        return (self.node.wsrep_incoming_addresses or "").split(",")[:_MOST_MEMBERS]

    @property
    def verdict(self) -> str:
        """The verdict in one word."""
        if self.fault:
            return "no answer"
        return word_of(available=self.available, draining=self.draining)


def own_address(source: Source) -> Address:
    """Return the address on which this host's service answers. Raises `SettingsError`."""
    # Without the warnings: this user may not be able to read the env file.
    settings = source.load(*LISTENING).settings
    host = settings.clustercheck_host.replace("*", "127.0.0.1")
    port = settings.clustercheck_port
    return Address(host_and_port(host, port), host, port)


def address_at(text: str, default_port: int) -> Address:
    """Parse host, host:port, address, [address] or [address]:port. Raises `SettingsError`."""
    # More than one colon: an IPv6 address.
    url = f"//[{text}]" if text.count(":") > 1 and "[" not in text else f"//{text}"
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and not parts.path and parts.username is None:
            return Address(text, parts.hostname, parts.port or default_port)
    # It may be a URL with a password.
    raise SettingsError("status: not an address; examples: db1:9200 [fd00::1]:9200")


def members_of(addresses: Sequence[Address]) -> list[Address]:
    """Return these services, and those of the other members that they know, on the same port."""
    known = {address.host for address in addresses}
    found = {}
    for one in ask(addresses):
        for index, member in enumerate(one.members):
            host, port = member.rpartition(":")[0].strip("[]"), one.address.port
            if index == one.node.wsrep_local_index:
                # It may have been named in another way than its server's address.
                known.add(host)
            # A server may show AUTO.
            if host:
                found[host] = Address(host_and_port(host, port), host, port)
    others = (address for host, address in found.items() if host not in known)
    return [*addresses, *others]


def ask(addresses: Sequence[Address]) -> list[Answer]:
    """Ask all at once; return their answers in the same order after at most `SECONDS`."""
    # Nothing can stop the lookup of a name: such a thread is left behind.
    asked = {address: in_thread(partial(_ask, address)) for address in addresses}
    wait(asked.values(), SECONDS)
    return [
        one.result()
        if one.done() and not one.exception()
        else no_answer(address, _NO_ANSWER)
        for address, one in asked.items()
    ]


def _ask(address: Address) -> Answer:
    received = b""
    try:
        received = _received(address)
        body = received.partition(b"\r\n\r\n")[2]
        document = from_json(body, allow_inf_nan=False)
        ours = {"address": address, "document": document, "fault": ""}
        return Answer(**document | ours)
    except UnicodeError:
        fault = "not a valid host name"
    except (BrokenPipeError, ConnectionResetError, ValueError, TypeError):
        fault = _NOT_OURS
        if status := _STATUS.match(received):
            seen = one_line(status[1].decode(errors="replace").strip())
            fault = f"something else answers there ({seen}): the clustercheck script?"
    except OSError as error:
        # A timeout of ours has no such text.
        fault = error.strerror or _NO_ANSWER
    return no_answer(address, fault)


def no_answer(address: Address, fault: str) -> Answer:
    """Return an answer that says why there is none."""
    return Answer(address=address, available=False, reason="-", fault=fault)


def _received(address: Address) -> bytes:
    """Return an answer, or its beginning if it is long. Raises `OSError`."""
    end = time.monotonic() + SECONDS
    received = b""
    with socket.create_connection((address.host, address.port), SECONDS) as connection:
        connection.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        # The clustercheck script resets the connection after its answer.
        with contextlib.suppress(ConnectionResetError):
            while len(received) <= _MOST_BYTES and (
                chunk := connection.recv(_MOST_BYTES)
            ):
                received += chunk
                if time.monotonic() > end:
                    raise TimeoutError
    return received
