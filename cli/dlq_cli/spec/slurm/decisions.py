"""The decision about each option of sbatch, salloc and srun.

An option that changes the amount of work is never dropped. It refuses the submission, unless that
is lenient: by `--lenient`, DLQ_SLURM_LENIENT=1, or `slurm_lenient` of the client's settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class OptionKind(StrEnum):
    """The treatment of an option."""

    TAKEN = "taken"
    NO_EFFECT = "accepted without effect"
    TOLD = "accepted without effect, and told"
    REFUSED = "refused, unless lenient"
    NEVER = "refused"


class OptionDecision(NamedTuple):
    """The kind, and the reason of every kind but the first."""

    kind: OptionKind
    why: str = ""

    @property
    def taken(self) -> bool:
        """Whether it is followed."""
        return self.kind is OptionKind.TAKEN


_GEOMETRY = "sockets and threads of nodes are not known here: ask for cores by -c"
_CLOCKS = "clocks are the operator's"
_NO_MAIL = "a rule sends mails: dlq notify add mail ADDRESS"
_PLACED = "the agent chooses cores and links itself"
_ONE_PART = "a job here has one part: submit the parts by dlq submit --group"
_EXTERNAL = "there is nothing of it here"


def _all(kind: OptionKind, why: str, *names: str) -> dict[str, OptionDecision]:
    return {f"--{name}": OptionDecision(kind, why) for name in names}


DECISIONS: Mapping[str, OptionDecision] = {
    **_all(
        OptionKind.TAKEN, "",
        "account", "array", "begin", "chdir", "clusters", "comment", "constraint",
        "container-image", "container-mounts", "container-workdir", "cpus-per-gpu",
        "cpus-per-task", "deadline", "dependency", "error", "exclude", "exclusive", "export",
        "gpus", "gpus-per-node", "gpus-per-task", "gres", "hold", "job-name",
        "kill-on-invalid-dep", "lenient", "mem", "mem-per-cpu", "mem-per-gpu", "mincpus",
        "no-requeue", "nodelist", "nodes", "ntasks", "ntasks-per-gpu", "ntasks-per-node",
        "open-mode", "output", "overcommit", "parsable", "partition", "propagate", "qos", "quiet",
        "requeue",
        "signal", "test-only", "time", "tres-per-task", "verbose", "wait", "wrap",
    ),
    **_all(
        OptionKind.NO_EFFECT, _PLACED,
        "accel-bind", "cpu-bind", "gres-flags", "hint", "mem-bind", "threads-per-core",
        "tres-bind", "switches", "contiguous", "spread-job", "use-min-nodes",
        "consolidate-segments", "segment", "spread-segments",
    ),
    **_all(OptionKind.NO_EFFECT, "each task has cores of its own", "ntasks-per-core"),
    **_all(
        OptionKind.NO_EFFECT, _EXTERNAL,
        "acctg-freq", "bell", "no-bell", "delay-boot", "extra", "ignore-pbs", "mcs-label",
        "oom-kill-step", "prefer", "profile", "resv-ports", "stepmgr", "wckey",
        "wait-all-nodes", "time-min", "get-user-env", "oversubscribe",
    ),
    **_all(OptionKind.NO_EFFECT, _CLOCKS, "cpu-freq", "gpu-freq", "power"),
    **_all(OptionKind.NO_EFFECT, _NO_MAIL, "mail-type", "mail-user"),
    **_all(OptionKind.NO_EFFECT, "srun lays the tasks out", "distribution"),
    **_all(OptionKind.TOLD, "space on local disks is not counted", "tmp"),
    **_all(
        OptionKind.TOLD, "dlq's --nice goes from -100 to 100, each step counts for more", "nice",
    ),
    **_all(OptionKind.TOLD, "only operators order jobs: --nice", "priority"),
    **_all(
        OptionKind.TOLD, "a gang that loses a node starts again from its checkpoint", "no-kill",
    ),
    **_all(OptionKind.REFUSED, "there are no licenses to count", "licenses"),
    **_all(OptionKind.REFUSED, "reservations are the operator's: dlq admin reserve", "reservation"),
    **_all(
        OptionKind.REFUSED, "none, closest, single:N and map_gpu:LIST are known", "gpu-bind",
    ),
    **_all(
        OptionKind.REFUSED, _GEOMETRY,
        "ntasks-per-socket", "sockets-per-node", "cores-per-socket", "extra-node-info",
        "gpus-per-socket", "core-spec", "thread-spec",
    ),
    **_all(OptionKind.REFUSED, "a job here has no stdin: let the script read the file", "input"),
    **_all(
        OptionKind.REFUSED, "name the variables with --export=A,B=2", "export-file",
    ),
    **_all(OptionKind.REFUSED, "name the nodes with --nodelist", "nodefile"),
    **_all(OptionKind.REFUSED, "there is no burst buffer", "bb", "bbf"),
    **_all(OptionKind.REFUSED, _EXTERNAL, "batch", "cluster-constraint", "network", "reboot"),
    **_all(
        OptionKind.REFUSED, "name an image by --container-image, or dlq submit --image",
        "container", "container-entrypoint", "container-env", "container-id",
        "container-mount-home", "container-name", "container-remap-root", "container-save",
        "container-writable", "no-container-entrypoint", "no-container-mount-home",
        "no-container-remap-root",
    ),
    **_all(OptionKind.NEVER, "a job runs as its submitter", "uid", "gid"),
    "hetjob": OptionDecision(OptionKind.NEVER, _ONE_PART),
    "packjob": OptionDecision(OptionKind.NEVER, _ONE_PART),
}  # fmt: skip

_BINDS_NOTHING = ("none", "closest", "verbose", "quiet", "v", "q", "")
_LAYOUTS = ("block", "cyclic", "plane", "*")
_BINDS_A_STEP = ("single", "map_gpu")


def decision(name: str, value: str = "") -> OptionDecision:
    """The decision about an option with that value."""
    if name == "--gpu-bind":
        kind = value.removeprefix("verbose,").partition(":")[0].lower()
        if kind in _BINDS_A_STEP:
            return OptionDecision(OptionKind.NO_EFFECT, "srun gives each task its GPU")
        if kind in _BINDS_NOTHING:
            return OptionDecision(OptionKind.NO_EFFECT, _PLACED)
    if name == "--input" and value in ("/dev/null", "none"):
        return OptionDecision(OptionKind.NO_EFFECT, "a job has no stdin anyway")
    if name == "--exclusive" and value:
        return OptionDecision(OptionKind.REFUSED, "nodes are shared with all users or none")
    if name == "--distribution" and re.split("[:=,]", value)[0].lower() not in _LAYOUTS:
        return OptionDecision(OptionKind.REFUSED, "block, cyclic and plane=N are known")
    if name == "--ntasks-per-core" and value != "1":
        return OptionDecision(OptionKind.REFUSED, _GEOMETRY)
    return DECISIONS.get(name, OptionDecision(OptionKind.REFUSED, _EXTERNAL))
