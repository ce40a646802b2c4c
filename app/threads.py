"""A thread for a call that may hang. One of a pool would hold up the end of the process."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def in_thread(call: Callable[[], _T]) -> Future[_T]:
    """Call it in a daemon thread. OSError is the result if none can start.

    Any fault but OSError and ValueError is ours: its traceback is printed, and no result comes.
    """
    answer = Future[_T]()

    def run() -> None:
        try:
            answer.set_result(call())
        except (OSError, ValueError) as fault:
            answer.set_exception(fault)

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError:
        answer.set_exception(OSError("clustercheckd could not start a thread"))
    return answer
