"""How the master's planner, twin and policy do, as text for people."""

from __future__ import annotations

from dlq.v1 import policy_pb2
from dlq_cli.output.render import OutputLook, clean_line, when
from dlq_common.text.wire import from_timestamp

# The effect of a failed helper, and the advice to operators.
_MISSING = {
    "planner": "no deadline is judged, and plans are plain ones",
    "twin": "there are no estimates, and no what-if",
    "policy": "nothing starts; running jobs go on",
}
_TODO = {
    "planner": "look at the master's log: journalctl -p err -u dlq-master; after an upgrade, "
    "restart the master",
    "twin": "look at the master's log: journalctl -p warning -u dlq-master; after an upgrade, "
    "restart the master",
    "policy": "look at the master's log: journalctl -p err -u dlq-master; another policy: dlq "
    "admin policy set",
}


def failing(helper: policy_pb2.Helper, look: OutputLook) -> str:
    """The failure, its beginning and its kind."""
    since = ""
    if helper.HasField("since_time"):
        since = f" since {when(from_timestamp(helper.since_time), look)}"
    missing = _MISSING.get(helper.name, "")
    told = (
        f"fails: {helper.failure_count} times in a row{since}, last: "
        f"{clean_line(helper.last_error)}"
    )
    return f"{told}; {missing}" if missing else told


def todo(helper: policy_pb2.Helper) -> str:
    """The advice for this failure."""
    return _TODO.get(helper.name, "look at the master's log: journalctl -p err -u dlq-master")
