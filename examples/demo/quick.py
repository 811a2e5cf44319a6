"""A master whose terms are seconds instead of minutes, so that its work can be watched."""

import subprocess
import sys
import time

USUAL_S = 0.4  # at most, for one command of `dlq` on a machine that has time for it
SLOWEST = 4

# A running job gives way only to a deadline, or to its machine's owner.
STAYS = ', min_run = "3600"'


def slowness() -> int:
    """The factor by which a demo stretches its times on this machine now, from 1 to SLOWEST. On a
    busy one every command takes longer, and a deadline in seconds would be over before any policy
    could keep it.
    """
    began_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "dlq_cli.main", "submit", "--help"],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return min(SLOWEST, max(1, round((time.monotonic() - began_s) / USUAL_S)))


def quick(
    more: str = "", *, lease: str = "", settings: str = "", stretch: int = 1, twin: bool = False
) -> str:
    """The tables appended to the configuration: `lease` and `settings` beside those here, and
    `more` tables. The terms are `stretch` times as long. `twin`: starts are forecast.
    """
    return f"""
[lease]
heartbeat = "1s"
be_term = "{4 * stretch}s"
slo_term = "{8 * stretch}s"
save_lead = "1s"
resume = "1s"
{lease}

[nodes]
reconnect_jitter = "1s"
start_grace = "10s"

[twin]
enabled = {str(twin).lower()}

[scheduler]
policy = "dlq"
settings = {{ be_floor = "0"{settings} }}

{more}
"""
