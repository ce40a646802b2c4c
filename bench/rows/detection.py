"""Time from a change on the node to the changed answer, compared with its bound: one interval and one poll."""

import asyncio
import random
import time
from typing import Any

import pymysql

from app.database.login import Database
from app.database.poller import Poller
from app.node_state import NodeState
from bench import load
from bench.rig import INTERVAL_SECONDS, Rig
from bench.table import Row, milliseconds, percentile
from harness.galera import ACCOUNT, PASSWORD
from harness.waiting import NotInTimeError

_CHANGES = 100
_POLLS = 100
_DEADLINE_SECONDS = 0.8
_PAUSE_SECONDS = 0.001
_LONGEST_SECONDS = 10.0
_STATUS = {"ON": b"HTTP/1.1 503 ", "OFF": b"HTTP/1.1 200 "}


def rows(rig: Rig) -> list[Row]:
    """Switch wsrep_desync on and off, at random times relative to the polls."""
    poll = percentile(asyncio.run(_poll_seconds(rig)), 99)
    session = rig.node.connect()
    try:
        times = [_change(rig, session, "OFF" if number % 2 else "ON") for number in range(_CHANGES)]
    finally:
        session.close()
    bound = INTERVAL_SECONDS + poll
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return [
        Row(
            f"time from a change on the node to the changed answer, p50 and p99 of {_CHANGES}",
            f"{milliseconds(p50)}, {milliseconds(p99)}",
            f"interval {milliseconds(INTERVAL_SECONDS)} + poll {poll * 1e3:.1f} ms",
            f"p99 is {p99 / bound:.2f}x the bound",
            f"<= {bound * 1e3:.1f} ms",
            p99 <= bound,
        ),
    ]


def _change(rig: Rig, session: "pymysql.Connection[Any]", value: str) -> float:
    time.sleep(random.uniform(0, INTERVAL_SECONDS))  # noqa: S311 (no secret)
    begun = time.monotonic()
    with session.cursor() as cursor:
        cursor.execute(f"SET GLOBAL wsrep_desync={value}")
    # Count from the end of the statement: the statement itself waits for the cluster to agree.
    changed = time.monotonic()
    while not load.ask(rig.service.port).startswith(_STATUS[value]):
        if time.monotonic() - begun > _LONGEST_SECONDS:
            message = f"wsrep_desync={value} was not seen within {_LONGEST_SECONDS:g} s"
            raise NotInTimeError(message)
        time.sleep(_PAUSE_SECONDS)
    return time.monotonic() - changed


async def _poll_seconds(rig: Rig) -> list[float]:
    poller = Poller(
        Database(socket=str(rig.node.socket), username=ACCOUNT, password=PASSWORD),
        _DEADLINE_SECONDS,
    )
    try:
        await poller.poll()
        return [await _one_poll(poller) for _ in range(_POLLS)]
    finally:
        await poller.close()


async def _one_poll(poller: Poller) -> float:
    begun = time.monotonic()
    poll = await poller.poll()
    if not isinstance(poll, NodeState):
        raise load.WrongAnswerError(poll.detail)
    return time.monotonic() - begun
