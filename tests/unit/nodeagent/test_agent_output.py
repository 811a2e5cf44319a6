"""Whatever goes wrong in the agent, a line of its output is one JSON object."""

import json
import subprocess
import sys

import pytest

from support.extent import spread

PROGRAM = """
import sys, threading, warnings
from dlq_common.clock import SteadyClock
from dlq_common.daemon.logs import configure_logging
from dlq_nodeagent.quiet import log_what_python_prints

configure_logging(SteadyClock(), stream=sys.stderr)
log_what_python_prints()

class Odd:
    def __del__(self):
        raise ValueError("odd\\nend")

def fail():
    raise ValueError("two\\nlines")

match sys.argv[1]:
    case "uncaught":
        fail()
    case "thread":
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    case "unraisable":
        Odd()
    case "warning":
        warnings.warn("old\\nways", DeprecationWarning, stacklevel=1)
"""


@pytest.mark.parametrize(
    ("trouble", "event"),
    spread(
        [
            ("uncaught", "agent_failed"),
            ("thread", "thread_failed"),
            ("unraisable", "exception_ignored"),
            ("warning", None),
        ],
        2,
    ),
)
def test_what_python_would_print_is_one_event(trouble: str, event: str | None) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, trouble],
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [json.loads(line) for line in ran.stderr.splitlines()]
    assert ran.stdout == ""
    assert ran.returncode == (1 if trouble == "uncaught" else 0)
    assert event is None or line["event"] == event
