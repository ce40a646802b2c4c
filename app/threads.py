"""A thread for a call that may hang: the end of the process waits for one of a pool."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def in_thread(call: Callable[[], _T]) -> Future[_T]:
    """Call it in a daemon thread. OSError is the result if none can start."""
    answer = Future[_T]()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as fault:  # noqa: BLE001 (whoever asks for the result gets it)
            answer.set_exception(fault)

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError:
        answer.set_exception(OSError("clustercheckd could not start a thread"))
    return answer
