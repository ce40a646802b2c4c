"""A reload: SIGHUP has the service read the settings again.

`settings_to_reload` refuses those that cannot be used. `app.service.serve` reads the node with the
others, and lets them take over only then.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

from app.settings.files import SettingsError
from app.settings.settings import LISTENING, Load, Settings

_log = logging.getLogger(__name__)


async def reload_at_each_sighup(reload: Callable[[], Awaitable[None]]) -> None:
    """Reload, one reload at a time, whenever SIGHUP has arrived."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    signal.signal(
        signal.SIGHUP, lambda _number, _frame: loop.call_soon_threadsafe(asked.set)
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
    try:
        while await asked.wait():
            asked.clear()
            await reload()
    finally:
        # The loop is about to end: its handler could not be called any more.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def settings_to_reload(load: Load, current: Settings) -> Settings:
    """Return the settings as they are now. Raises `SettingsError` if they cannot be used."""
    settings, warnings = load(strict=True)
    for line in warnings:
        _log.warning("setting ignored", extra={"detail": line})
    if any(getattr(settings, name) != getattr(current, name) for name in LISTENING):
        raise SettingsError(
            "CLUSTERCHECK_HOST and CLUSTERCHECK_PORT need: systemctl restart clustercheckd"
        )
    settings.require_usable()
    return settings
