"""Asks running services for their /status, each in a thread of its own.

A service has `SECONDS` in all: for the lookup of its name, to connect, and to answer. Any program may answer there:
clustercheckd reads at most `_MOST_BYTES`, and passes no control characters to a terminal.
"""

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any

from app.node_state import one_line
from app.settings import MOST_PORT, Settings
from app.settings_error import SettingsError

SECONDS = 2.0
_MOST_BYTES = 1 << 18
_NO_ANSWER = f"no answer within {SECONDS:g} s"
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
        return f"{self.fault}{self.service.hint}" if self.status is None else why(self.status)


def text_in(document: Mapping[str, Any], name: str) -> str:
    """Return a text of a document as one printable line; `-` if there is none."""
    value = document.get(name)
    return one_line(value) if isinstance(value, str) and value else "-"


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
    if found is None or not 1 <= port <= MOST_PORT:
        # Before the @ of a URL may be a password.
        shown = "" if "@" in text else f"{one_line(text)!r} is "
        raise SettingsError(f"status: {shown}not an address; examples: db1 db1:9200 [fd00::1]:9200")
    return Service(text, found["bracketed"] or found["host"], port)


def ask(services: Sequence[Service]) -> list[Answer]:
    """Ask all at once; return their answers in the same order after at most `SECONDS`."""
    answers = [Answer(service, fault=_NO_ANSWER) for service in services]
    end = time.monotonic() + SECONDS

    def ask_one(index: int) -> None:
        answers[index] = _answer(services[index])

    # Nothing can stop the lookup of a name, and a slow answer takes its time: such a thread is left behind.
    threads = [threading.Thread(target=ask_one, args=(index,), daemon=True) for index in range(len(services))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return list(answers)


def _answer(service: Service) -> Answer:
    connection = HTTPConnection(service.host, service.port, timeout=SECONDS)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read(_MOST_BYTES).decode(errors="replace"))
        if isinstance(status["available"], bool) and isinstance(status["reason"], str):
            return Answer(service, status)
    except UnicodeError:
        return Answer(service, fault="not a valid host name")
    except (ConnectionResetError, BrokenPipeError):
        return Answer(service, fault="closed the connection: check CLUSTERCHECK_ALLOW_FROM there")
    except OSError as fault:
        # The connection's own timeout has no such text.
        return Answer(service, fault=fault.strerror or _NO_ANSWER)
    except (HTTPException, ValueError, TypeError, LookupError, RecursionError):
        pass
    finally:
        connection.close()
    return Answer(service, fault="something other than clustercheckd answers there")
