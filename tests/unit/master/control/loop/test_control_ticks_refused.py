"""A tick that is refused half way is told of: nobody asked, so nobody else would."""

from structlog.testing import capture_logs

from dlq_common.errors import Conflict
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.loop.turn import Turn
from support.master_harness import Master


def test_a_tick_that_is_refused_is_an_error_in_the_log() -> None:
    def refuses(_turn: Turn) -> None:
        raise Conflict("it cannot be")

    master = Master()
    master.loop._wiring = WIRING._replace(ticks={"leases": (refuses,)})
    with capture_logs() as told:
        master.tick()
    master.close()
    (line,) = [line for line in told if line["event"] == "tick_refused"]
    assert (line["log_level"], line["tick"], line["error"]) == ("error", "leases", "it cannot be")
