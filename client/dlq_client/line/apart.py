"""Calls apart from the main thread, which alone hears Ctrl-C.

gRPC does not survive a KeyboardInterrupt everywhere: one that comes between the begin of a call and
whoever looks after it leaves a call that never ends, and who closes its channel, or drops it, waits
for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def apart(call: Callable[[], T]) -> T:
    """What it returns or raises. Ctrl-C is heard at once; the call then goes on, until the channel
    is closed.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again where its answer is awaited
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer.result()
