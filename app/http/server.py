"""The uvicorn server of this service: its sockets, its protocol, and how it stops."""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import uvicorn

from app.http.guard import ConnectionRegister, GuardedProtocol
from app.settings import Settings
from app.settings_error import SettingsError
from app.switches import ManualSwitches

if TYPE_CHECKING:
    from starlette.types import ASGIApp

EVERY_ADDRESS = "*"

_log = logging.getLogger(__name__)

_FIRST_INHERITED_FD = 3  # SD_LISTEN_FDS_START, sd_listen_fds(3)
_KEPT = "listening"
"""The name of the listening socket that is handed down."""
_BACKLOG = 4096
_ANSWER_SECONDS = 0.2
"""How long the answers of held health checks may take to leave while the service stops."""


class Server(uvicorn.Server):
    """A uvicorn server that stops on SIGTERM and SIGINT, with exit status 0.

    After the first signal, it serves for CLUSTERCHECK_DRAIN_SECONDS, with switches.shutting_down set. A second signal
    stops it at once. on_stop: called after a signal, with the seconds that are left to serve. give_up: called shortly
    before the server stops if answers are still held; it must release them.

    SIGHUP stops it too, at once, if on_reload returns true. `reloading` says that this is why the server has stopped.
    """

    def __init__(
        self,
        settings: Settings,
        application: "ASGIApp",
        register: ConnectionRegister,
        switches: ManualSwitches,
        *,
        give_up: Callable[[], object],
        on_stop: Callable[[float], None],
        on_reload: Callable[[], Awaitable[bool]],
    ) -> None:
        self.reloading = False
        self._reloads: set[asyncio.Task[None]] = set()
        self._one_reload = asyncio.Lock()
        self._switches = switches
        self._give_up = give_up
        self._on_stop = on_stop
        self._on_reload = on_reload
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

        class Protocol(GuardedProtocol):
            """A connection to this server."""

            _register = register

        super().__init__(
            uvicorn.Config(
                application,
                http=Protocol,
                ws="none",
                lifespan="off",
                backlog=_BACKLOG,
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                # Do not trust what a client says about its own address.
                proxy_headers=False,
                # An int for type checkers only: it is passed to asyncio.wait_for.
                timeout_graceful_shutdown=settings.clustercheck_deadline + _ANSWER_SECONDS,  # type: ignore[arg-type]
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Stop. uvicorn's own handler would raise the signal again at the end, and change the exit status."""
        # Leave the rest to the event loop, which this call wakes: a signal handler must not log, because the code that
        # it interrupts may hold the lock of the log's queue.
        stop = self._begin_reload if sig == signal.SIGHUP else self._stop
        self._loop.call_soon_threadsafe(stop, signal.Signals(sig).name)

    async def main_loop(self) -> None:
        """Wait until told to stop. uvicorn's own loop wakes ten times a second, a third of the idle CPU time."""
        signal.signal(signal.SIGHUP, self.handle_exit)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
        await self._ended.wait()
        # Also for the program that this process is about to execute, until that can handle it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but first answer the held health checks: uvicorn would answer them with 500."""
        giving_up = self._loop.call_later(self._settings.clustercheck_deadline, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _begin_reload(self, signal_name: str) -> None:
        reload = self._loop.create_task(self._reload(signal_name))
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)

    async def _reload(self, signal_name: str) -> None:
        async with self._one_reload:
            # What stops does not start again.
            if not self._is_stopping and await self._on_reload() and not self._is_stopping:
                _log.info("reloading", extra={"signal": signal_name})
                self.reloading = True
                self._ended.set()

    @property
    def _is_stopping(self) -> bool:
        return self._ended.is_set() or self._switches.shutting_down

    def _stop(self, signal_name: str) -> None:
        self.reloading = False
        seconds = self._settings.clustercheck_drain_seconds
        if seconds and not self._switches.shutting_down:
            _log.info("draining", extra={"signal": signal_name, "seconds": seconds})
            self._switches.shutting_down = True
            self._on_stop(seconds)
            self._loop.call_later(seconds, self._ended.set)
        else:
            _log.info("stopping", extra={"signal": signal_name})
            self._on_stop(0)
            self._ended.set()


def listening_socket(
    settings: Settings, kept: socket.socket | None, keep: Callable[[socket.socket, str], object]
) -> socket.socket:
    """Return a socket that listens as the settings say: kept if that does, or else a new one, which goes to keep.

    It listens at once, so that health checks which arrive before the first poll has ended wait instead of failing.
    keep: called with the socket and a name. A later process gets it back from `inherited_socket`.

    Raises `SettingsError` if that fails; kept then listens as before.
    """
    host, port = settings.clustercheck_host, settings.clustercheck_port
    try:
        family, address = _address(host, port)
        dual_stack = host == EVERY_ADDRESS and family == socket.AF_INET6
        create = partial(socket.create_server, address, family=family, backlog=_BACKLOG, dualstack_ipv6=dual_stack)
        if kept is None:
            opened = create()
        elif (kept.getsockname()[:2], _is_dual_stack(kept)) == (address, dual_stack):
            return kept
        else:
            opened = _create_in_place_of(kept, port, create)
    except (OSError, UnicodeError) as fault:
        number = fault.errno if isinstance(fault, OSError) else None
        if number == errno.EADDRINUSE:
            words = f"the port is in use; to see by which process, run: ss -ltnp 'sport = :{port}'"
        elif isinstance(fault, socket.gaierror) or number is None:
            words = "not an address or a host name"
        else:
            # Without the address, which Python adds to some of its own messages.
            words = os.strerror(number)
        raise SettingsError(f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}: {words}") from None
    keep(opened, _KEPT)
    return opened


def address_of(listening: socket.socket) -> str:
    """Return a socket's address in a form for the log."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def inherited_socket() -> socket.socket | None:
    """Return the listening socket from before a restart or a reload, if there is one."""
    # sd_listen_fds(3): the variables are valid only in the process with this id.
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or _KEPT not in names:
        return None
    return socket.socket(fileno=_FIRST_INHERITED_FD + names.index(_KEPT))


def execute_again(listening: socket.socket) -> NoReturn:
    """Replace this process by what its command line starts, which inherits the socket."""
    os.dup2(listening.fileno(), _FIRST_INHERITED_FD)
    os.set_inheritable(_FIRST_INHERITED_FD, True)  # noqa: FBT003 (os's own signature)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES=_KEPT)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (no shell is wanted)


def _create_in_place_of(kept: socket.socket, port: int, create: Callable[[], socket.socket]) -> socket.socket:
    try:
        return create()
    except OSError as fault:
        if fault.errno != errno.EADDRINUSE or kept.getsockname()[1] != port:
            raise
    # Kept itself is in the way. systemd has it open too: closing alone would not free the port.
    kept.shutdown(socket.SHUT_RDWR)
    try:
        return create()
    except OSError:
        kept.listen(_BACKLOG)
        raise


def _is_dual_stack(listening: socket.socket) -> bool:
    return listening.family == socket.AF_INET6 and not listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if host == EVERY_ADDRESS:
        return (socket.AF_INET6, ("::", port)) if socket.has_dualstack_ipv6() else (socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 (the default)
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, (str(address[0]), port)
