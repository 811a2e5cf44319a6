"""How long calls take and how they end, and how many streams are open, for the metrics.

A stream has no meaningful duration, so it counts only while it is open. The numbers begin at 0 with
every start of the master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dlq_master.control.loop.histogram import CALLS_S, Histograms
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.errors import code_name

_OURS = "/dlq.v1."


class CallTimes:
    """The figures of one port. Used in the event loop's thread only."""

    def __init__(self, tell_s: Callable[[], float]) -> None:
        """`tell_s`: a monotonic clock."""
        self.tell_s = tell_s
        self.calls = Histograms(CALLS_S, "code", "method")
        self.streams: Counter[str] = Counter()  # that are open, by method

    def begun(self, call: Call) -> float:
        """Count a call; return its begin, for `ended`."""
        if call.streaming:
            self.streams[method_of(call)] += 1
        return self.tell_s()

    def ended(self, call: Call, since_s: float, error: BaseException | None) -> None:
        """Count the end of a call, with this error or None."""
        method = method_of(call)
        if call.streaming:
            self.streams[method] -= 1
            return
        self.calls.of(code_name(error), method).observe(self.tell_s() - since_s)


def method_of(call: Call) -> str:
    """The label of a method, such as `JobService/SubmitJob`. There are few of them."""
    return call.path.removeprefix(_OURS).removeprefix("/")
