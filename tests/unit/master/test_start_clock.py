"""The time axis of a starting master, where the host's boot is told by the unit, by the kernel, or
by nobody.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_master.start_clock import ANCHOR, BOOT_ID, anchor, start_clock, this_boot

BOOT = "0123456789abcdef0123456789abcdef"
DASHED = "01234567-89ab-cdef-0123-456789abcdef"
DAY_S = 86_400.0


def test_the_unit_and_the_kernel_tell_the_same_boot(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text(f"{DASHED}\n")
    assert this_boot({}, tmp_path / "boot_id") == BOOT
    assert this_boot({BOOT_ID: BOOT}, tmp_path / "none") == BOOT


def test_a_service_that_sees_no_boot_starts_all_the_same(tmp_path: Path) -> None:
    boot_id = this_boot({}, tmp_path / "none")
    assert boot_id == ""
    clock = start_clock({}, 0.0, tmp_path, boot_id)
    again = start_clock(anchor(clock, boot_id), clock.now_s(), tmp_path, boot_id)
    assert again.now_s() >= clock.now_s() - 1.0


@pytest.mark.parametrize("stored", [BOOT, DASHED])
def test_a_wall_clock_set_ahead_is_held_back_in_the_same_boot_alone(
    tmp_path: Path, stored: str
) -> None:
    host = SteadyClock()
    # The last master of this boot showed an instant a day ago, just now.
    then_s = host.now_s() - DAY_S
    told = {"boot_id": stored, "boottime_s": host.boottime_s(), "now_s": then_s}
    meta = {ANCHOR: json.dumps(told)}
    assert start_clock(meta, then_s, tmp_path, BOOT).now_s() < then_s + DAY_S / 2
    assert start_clock(meta, then_s, tmp_path, "f" * 32).now_s() > then_s + DAY_S / 2
    assert start_clock(meta, then_s, tmp_path, "").now_s() > then_s + DAY_S / 2
