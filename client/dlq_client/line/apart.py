"""Calls apart from the main thread, which alone hears Ctrl-C.

gRPC does not survive a KeyboardInterrupt everywhere. An interrupt between the begin of a call and
its first reader leaves a call that never ends. Closing or dropping its channel then waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def apart(call: Callable[[], T]) -> T:
    """The result of `call`, or its exception. Ctrl-C is noticed at once; the call then goes on,
    until the channel is closed.
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
