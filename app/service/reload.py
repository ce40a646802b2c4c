"""A reload, from both ends: the process that runs, and the successor that it starts."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime

from app.database.poller import Poller
from app.database.sessions import IN_USE
from app.database.sync import Answers, Sync
from app.deadline import boot_seconds
from app.http.reload_outcome import ReloadOutcome
from app.http.sources import Sources
from app.service.successor import Known, Predecessor, Report, Successor
from app.settings.error import SettingsError
from app.verdict.node_state import NodeState, PollFailure, PollResult
from app.verdict.reason import Reason

_START_SECONDS = 60.0
"""How long a successor may take until it accepts."""

_TRIES = 2  # one login may be slow
_AGAIN_SECONDS = 0.2

_HANGS = PollFailure(
    Reason.TIMEOUT,
    "it would keep one more session for each reload: reload once it answers again",
)

_log = logging.getLogger(__name__)


async def reload(
    sources: Sources,
    listening: socket.socket,
    hand_over: Callable[[Successor, int], Awaitable[object]],
) -> bool:
    """Start a successor, and hand over to its process id once it accepts. Return whether it does.

    If it does not, `last_reload` says why. hand_over: returns when this process accepts no more.
    """
    began_at = datetime.now(UTC)
    sessions = sources.poller.sessions
    try:
        await sources.monitor.fresh_verdict()
        with closing(Successor(listening)) as successor:
            successor.tell(known_of(sources, began_at))
            sessions.others, sessions.is_shared = IN_USE, True
            # Once it has handed over, this process can refuse nothing any more.
            async with asyncio.timeout(_START_SECONDS):
                report = await _report(successor, sources, began_at)
            sessions.others = report.sessions
            if not report.outcome.complaints:
                stops = hand_over(successor, report.pid)
                successor.follows = True
                await stops
                successor.tell(known_of(sources, began_at))
                return True
        outcome = report.outcome
    except TimeoutError:
        outcome = failed(f"the new process was not ready within {_START_SECONDS:g} s")
    except EOFError:
        outcome = failed("the new process ended before it was ready: see the log")
    except OSError as error:
        outcome = failed(f"no new process can take over: {error.strerror}")
    except Exception:  # noqa: BLE001 (no fault may end the reloading)
        _log.exception("not reloaded")
        outcome = failed("clustercheckd failed to reload: see its log")
    finally:
        sessions.is_shared = False
    # Who asks meanwhile for the next one waits for a later one than this.
    outcome.at = began_at
    refuse(sources, outcome)
    return False


def failed(fault: str) -> ReloadOutcome:
    """Return the outcome of a reload that no setting has made fail."""
    return ReloadOutcome(datetime.now(UTC), [fault], PollFailure(Reason.ERROR, fault))


def refuse(sources: Sources, outcome: ReloadOutcome) -> None:
    """Show and log why nothing has changed."""
    sources.last_reload = outcome
    for line in outcome.complaints:
        _log.error("not reloaded", extra={"detail": line})


async def _report(successor: Successor, sources: Sources, at: datetime) -> Report:
    """Return what a successor says that accepts, or why it does not or may not."""
    report = await successor.answer(Report)
    outcome = report.outcome
    if failure := outcome.failure:
        await sources.monitor.fresh_verdict()
        result = sources.monitor.result
        seen = f"{failure.reason}: {failure.detail}"
        # That another host's server can be read says nothing of this one's.
        if isinstance(result, NodeState) and not result.elsewhere:
            outcome.complaints = [
                f"the node can be read, and could not be with these settings: {seen}"
            ]
        elif _hangs(result) and _hangs(failure):
            outcome.complaints = [f"the server hangs: {seen}"]
    if not outcome.complaints:
        successor.tell(known_of(sources, at))
        report = await successor.answer(Report)
    return report


def _hangs(result: PollResult | None) -> bool:
    return isinstance(result, PollFailure) and result.reason is Reason.TIMEOUT


def known_of(sources: Sources, at: datetime) -> Known:
    """Return what a successor is to know. at: when the reload began."""
    return Known(
        at,
        sources.settings.server,
        _hangs(sources.monitor.result),
        sources.connections.recent(),
        sources.poller.sync_wait_seconds,
        sources.poller.stand,
        sources.poller.sessions.count,
        sources.loaded.env_file,
    )


async def follow(old: Predecessor, sources: Sources, outcome: ReloadOutcome) -> None:
    """Try the settings of a successor; return once it may take over. outcome: gets what came of it.

    Raises `SettingsError`.
    """
    poller = sources.poller
    # The server may have hung for any time.
    poller.sync = Sync(answers=Answers.SILENCE)
    poller.sessions.is_shared = True
    try:
        known = await old.answer(Known)
        outcome.at = known.at
        if known.env_file and not sources.loaded.env_file:
            raise SettingsError(f"env file {known.env_file}: it is gone")
        poller.sessions.others = max(IN_USE, known.sessions)
        is_same = list(known.server) == list(sources.settings.server)
        result = _HANGS if is_same and known.hangs else await _first_result(poller)
        failure = result if isinstance(result, PollFailure) else None
        outcome_so_far = ReloadOutcome(known.at, failure=failure)
        old.tell(Report(os.getpid(), outcome_so_far, poller.sessions.own))
        # It kills us if it can read the node, and we cannot.
        known = await old.answer(Known)
    except EOFError:
        # It has died, and nobody answers.
        return
    outcome.shut_out = [
        client for client in known.asked if not sources.connections.allows(client)
    ]
    if is_same:
        poller.stand = known.stand
        poller.sync = poller.sync.waited(boot_seconds(), known.sync_wait_seconds)


async def _first_result(poller: Poller) -> PollResult:
    """Return the first poll that reads the node in sync, or how the last of two ended."""
    for _ in range(_TRIES):
        result = await poller.poll()
        while isinstance(result, NodeState) and result.returning:
            await asyncio.sleep(_AGAIN_SECONDS)
            result = await poller.poll()
        if isinstance(result, NodeState):
            break
    return result
