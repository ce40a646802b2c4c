"""A reload: SIGHUP reads the settings again.

If they can be used, the process executes itself, with its listening socket. If not, the log says
why, and the old ones stay.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import aclosing

from app.database.poller import Poller
from app.monitor.monitor import Monitor
from app.settings.files import SettingsError
from app.settings.settings import LISTENING, Settings
from app.verdict.node_state import NodeState, PollFailure

_log = logging.getLogger(__name__)

Load = Callable[[], tuple[Settings, list[str]]]
"""Reads the settings, and returns them with warnings to log. Raises `SettingsError`."""


async def usable_settings(load: Load, settings: Settings, monitor: Monitor) -> None:
    """Wait until a SIGHUP finds settings that can be used instead of these."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGHUP, lambda _number, _frame: loop.call_soon_threadsafe(asked.set))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
    try:
        while await asked.wait():
            asked.clear()
            try:
                await _check(load, settings, monitor)
            except SettingsError as fault:
                for line in str(fault).splitlines():
                    _log.error("not reloaded", extra={"detail": line})
            except Exception:  # noqa: BLE001 (no fault may end the reloading)
                _log.exception("not reloaded")
            else:
                _log.info("reloading", extra={"signal": "SIGHUP"})
                return
    finally:
        # Also for the program that this process is about to execute, until that can handle it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


async def _check(load: Load, settings: Settings, monitor: Monitor) -> None:
    """Raise `SettingsError` if the new settings cannot be used.

    With them, a node that can be read must be polled once, in a session of its own. Available or
    not: a drained one is to come back.
    """
    new, _ = load()
    if any(getattr(new, name) != getattr(settings, name) for name in LISTENING):
        raise SettingsError(
            "CLUSTERCHECK_HOST and CLUSTERCHECK_PORT need: systemctl restart clustercheckd"
        )
    new.require_login()
    async with aclosing(Poller(new.database(), new.clustercheck_deadline)) as poller:
        result = await poller.poll()
    if isinstance(result, PollFailure) and isinstance(monitor.result, NodeState):
        raise SettingsError(
            f"the node can be read, and could not be: {result.reason}: {result.detail}"
        )
