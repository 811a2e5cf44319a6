"""The plan file the shim reads: NUL-terminated `key=value` records (shim/README.md)."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dlq_common.text.soft_limits import UNLIMITED
from dlq_nodeagent.cgroups.port import CgroupDir
from dlq_nodeagent.model.launch import LaunchPlan

_VERSION = "dlq-plan=1"
_END = "end"


class PlannedLaunch(NamedTuple):
    """An agent's knowledge of an attempt that an earlier agent started."""

    epoch: int
    uid: int
    gid: int
    dirs: tuple[CgroupDir, ...]


def encode(
    plan: LaunchPlan, dirs: Iterable[CgroupDir], contact: Path, more: Iterable[str] = ()
) -> bytes:
    """The plan as the shim reads it, `more` records of a runtime's own included. Text that is not
    UTF-8 travels as it came (surrogateescape).
    """
    records = [
        _VERSION,
        f"job_id={plan.job_id}",
        f"attempt={plan.attempt}",
        f"epoch={plan.epoch}",
        f"node_rank={plan.node_rank}",
        f"cwd={plan.cwd}",
        f"contact={contact}",
        f"run_as={plan.run_as}",
        f"allow_root={'yes' if plan.allow_root else 'no'}",
        f"uid={plan.uid}",
        f"gid={plan.gid}",
        *(f"group={group}" for group in plan.groups),
        f"hold_ms={_ms(plan.hold_s)}",
        f"grace_ms={_ms(plan.grace_s)}",
        f"term_ms={_ms(plan.term_s)}",
        f"signal={plan.signal}",
        *(["signal_to=ranks"] if plan.to_ranks else []),
        f"umask={plan.umask}",
        *(f"soft_limit={name}:{_limit(value)}" for name, value in plan.soft_limits.items()),
        f"log_head_bytes={plan.log_head_bytes}",
        f"log_ring_bytes={plan.log_ring_bytes}",
        f"log_bytes_per_s={plan.log_bytes_per_s}",
        *(f"cgroup={each.kind}:{each.path}" for each in dirs),
        *(f"env={name}={value}" for name, value in plan.env.items()),
        *(f"arg={word}" for word in plan.argv),
        *more,
        _END,
    ]
    return b"".join(record.encode("utf-8", "surrogateescape") + b"\0" for record in records)


def decode(data: bytes) -> PlannedLaunch:
    """Read the needed parts back; ValueError for anything but a whole plan of this version."""
    records = data.decode("utf-8", "surrogateescape").split("\0")
    if records[0] != _VERSION or records[-2:] != [_END, ""]:
        raise ValueError("not a whole plan of version 1")
    pairs = [record.partition("=")[::2] for record in records[1:-2]]
    only = dict(pairs)
    dirs = tuple(CgroupDir(*value.split(":", 1)) for key, value in pairs if key == "cgroup")
    try:
        return PlannedLaunch(int(only["epoch"]), int(only["uid"]), int(only["gid"]), dirs)
    except KeyError as missing:
        raise ValueError(f"the plan has no {missing}") from missing


def _limit(value: int) -> str:
    return "unlimited" if value >= UNLIMITED else str(value)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
