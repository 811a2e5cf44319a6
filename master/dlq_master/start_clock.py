"""Where the time axis of a starting master begins, and when the host's wall clock is not to be
believed.

The axis goes on from what was stored (ADR 2). Three sources are compared: the wall clock, the
newest instant in the database, and the uptime. In the same boot of the host the uptime gives the
time that has passed since the master before this one started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dlq_common.clock import Clock, SteadyClock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_common.identity.facts import LIFETIME_S
from dlq_common.text.instants import format_instant
from dlq_common.text.units import approximate_span

ANCHOR = "clock"  # key of meta: this boot, its boottime and the axis when the last master started
# The wall clock and the axis may differ by so much: shown times are wrong by it, and nothing worse.
MOST_APART_S = 3600.0
# In the environment; the unit sets it, since a service with ProcSubset=pid has no /proc/sys
BOOT_ID = "DLQ_BOOT_ID"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def this_boot(environ: Mapping[str, str], path: Path = _BOOT_ID) -> str:
    """The id of the host's boot, 32 hexadecimal digits; empty where nothing tells it."""
    told = environ.get(BOOT_ID, "")
    if not told:
        try:
            told = path.read_text("ascii")
        except OSError:
            return ""
    return told.strip().replace("-", "")


def start_clock(
    meta: Mapping[str, str], last_time_s: float, state_dir: Path, boot_id: str
) -> SteadyClock:
    """The clock of this master. `boot_id`: as `this_boot` tells it; without one every start is
    taken for the first in its boot.

    Raises ConfigError where the wall clock and the database contradict each other, in either
    direction: time limits, retention and deadlines would follow whichever is wrong. `dlq-master
    reset-clock` settles it.
    """
    host = SteadyClock()
    wall_s, passed_s = host.now_s(), _passed_to(meta, host, boot_id)
    _check(wall_s, last_time_s, passed_s, state_dir)
    if passed_s is None or wall_s <= passed_s + MOST_APART_S:
        return SteadyClock(floor_s=last_time_s)
    get_logger("master.clock").error(
        "wall_clock_ahead",
        wall=format_instant(wall_s),
        goes_on_at=format_instant(passed_s),
        hint="this host has not been up for so long: set its clock",
    )
    return SteadyClock(floor_s=last_time_s, ceiling_s=passed_s)


def anchor(clock: Clock, boot_id: str) -> dict[str, str]:
    """The row of meta by which the next master of this boot finds the axis again."""
    told = {"boot_id": boot_id, "boottime_s": clock.boottime_s(), "now_s": clock.now_s()}
    return {ANCHOR: json.dumps(told)}


def former_boot(meta: Mapping[str, str]) -> str:
    """The boot in which the last master began, as `this_boot` tells it; empty where none did."""
    stored = meta.get(ANCHOR)
    return str(json.loads(stored)["boot_id"]).replace("-", "") if stored is not None else ""


def _check(wall_s: float, last_time_s: float, passed_s: float | None, state_dir: Path) -> None:
    if last_time_s == 0.0:
        return  # nothing was ever stored
    if last_time_s > wall_s + MOST_APART_S:
        raise _doubt("behind", wall_s, last_time_s, state_dir)
    # In the boot of the last entry the time since then is known. Otherwise, after so long no
    # certificate is good any more and nothing runs. The operator that starts the master then is
    # there to say that the clock is right.
    if passed_s is None and wall_s > last_time_s + LIFETIME_S:
        raise _doubt("ahead of", wall_s, last_time_s, state_dir)


def _doubt(where: str, wall_s: float, last_time_s: float, state_dir: Path) -> ConfigError:
    apart = approximate_span(abs(wall_s - last_time_s))
    return ConfigError(
        f"the clock of this host says {format_instant(wall_s)}, {apart} {where} the newest entry "
        f"in {state_dir / 'dlq.db'} ({format_instant(last_time_s)}): one of the two is wrong",
        hint="if it is the host's clock, set it (timedatectl); if the clock is right, `dlq-master "
        "reset-clock` "
        "corrects the database",
    )


def _passed_to(meta: Mapping[str, str], host: Clock, boot_id: str) -> float | None:
    """The instant that the axis of the last master would show now; None in another boot."""
    stored = meta.get(ANCHOR)
    if stored is None:
        return None
    found = json.loads(stored)
    if not boot_id or former_boot(meta) != boot_id:
        return None
    return float(found["now_s"]) + host.boottime_s() - float(found["boottime_s"])
