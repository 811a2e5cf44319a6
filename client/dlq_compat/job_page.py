"""The page of `scontrol show job`: one layout, whether the master was asked or the job asks about
itself.
"""

from __future__ import annotations

from typing import Iterator, List, Mapping, Optional, Tuple

UNKNOWN = "Unknown"
NOT_SET = "N/A"
NULL = "(null)"

# Each inner tuple is a line, as Slurm lays it out. A field with the default None is left out where
# it is not known; others read as Slurm's unset. A thing that dlq has not is always unset.
_LINES: Tuple[Tuple[Tuple[str, Optional[str]], ...], ...] = (
    (
        ("JobId", ""),
        ("ArrayJobId", None),
        ("ArrayTaskId", None),
        ("ArrayTaskThrottle", None),
        ("HetJobId", None),
        ("HetJobOffset", None),
        ("JobName", NULL),
    ),
    (("HetJobIdSet", None),),
    (("UserId", NULL), ("GroupId", NULL), ("MCS_label", NOT_SET)),
    (("Priority", "1"), ("Nice", "0"), ("Account", NULL), ("QOS", "normal")),
    (("JobState", UNKNOWN), ("Reason", "None"), ("Dependency", NULL)),
    (("Requeue", "1"), ("Restarts", "0"), ("BatchFlag", "1"), ("Reboot", "0"), ("ExitCode", "0:0")),
    (("DerivedExitCode", None),),
    (("RunTime", "00:00:00"), ("TimeLimit", "UNLIMITED"), ("TimeMin", NOT_SET)),
    (("SubmitTime", UNKNOWN), ("EligibleTime", UNKNOWN)),
    (("AccrueTime", UNKNOWN),),
    (("StartTime", UNKNOWN), ("EndTime", UNKNOWN), ("Deadline", NOT_SET)),
    (("PreemptEligibleTime", None), ("PreemptTime", None)),
    (
        ("SuspendTime", "None"),
        ("SecsPreSuspend", "0"),
        ("LastSchedEval", UNKNOWN),
        ("Scheduler", "Main"),
    ),
    (("Partition", NULL), ("AllocNode:Sid", "%s:0" % NULL)),
    (("ReqNodeList", NULL), ("ExcNodeList", NULL)),
    (("NodeList", ""),),
    (("BatchHost", None),),
    (
        ("NumNodes", "1"),
        ("NumCPUs", "1"),
        ("NumTasks", "1"),
        ("CPUs/Task", "1"),
        ("ReqB:S:C:T", "0:0:*:*"),
    ),
    (("TRES", NULL),),
    (("Socks/Node", "*"), ("NtasksPerN:B:S:C", "0:0:*:*"), ("CoreSpec", "*")),
    (("JOB_GRES", None),),
    (("MinCPUsNode", "1"), ("MinMemoryNode", "0"), ("MinTmpDiskNode", "0")),
    (("Features", NULL), ("DelayBoot", "00:00:00")),
    (("OverSubscribe", "OK"), ("Contiguous", "0"), ("Licenses", NULL), ("Network", NULL)),
    (("Command", NULL),),
    (("WorkDir", NULL),),
    (("Comment", None),),
    (("StdErr", ""),),
    (("StdIn", "/dev/null"),),
    (("StdOut", ""),),
    (("Power", ""),),
    (("TresPerJob", None),),
    (("TresPerNode", None),),
)
_BLANK_AFTER = ("Comment",)  # Slurm writes one behind it


def page(facts: Mapping[str, str], *, one_line: bool) -> str:
    """The page with its last empty line, as scontrol prints it."""
    between = " " if one_line else "\n   "
    text = between.join(" ".join(words) for words in _lines(facts) if words)
    return text + (" " if one_line else between + "\n")


def _lines(facts: Mapping[str, str]) -> Iterator[List[str]]:
    for line in _LINES:
        words = []
        for name, default in line:
            value = facts.get(name, "")
            if value or default is not None:
                blank = " " if name in _BLANK_AFTER else ""
                words.append("%s=%s%s" % (name, value or default, blank))
        yield words


def clock(seconds: Optional[float]) -> str:
    """`00:10:29`, `1-02:03:04`; UNLIMITED for None. sacct and scontrol write durations so."""
    if seconds is None:
        return "UNLIMITED"
    left = max(0, int(seconds))
    days, hours, minutes = left // 86400, left // 3600 % 24, left // 60 % 60
    text = "%02d:%02d:%02d" % (hours, minutes, left % 60)
    return "%d-%s" % (days, text) if days else text


def tres(nodes: int, cpus: int, memory_mib: int, gpus: int) -> str:
    """`cpu=8,mem=64G,node=1,gres/gpu=8`; memory only where it has been declared."""
    words = ["cpu=%d" % cpus]
    words += ["mem=%s" % size(memory_mib)] if memory_mib else []
    words += ["node=%d" % nodes, "billing=%d" % cpus]
    words += ["gres/gpu=%d" % gpus] if gpus else []
    return ",".join(words)


def size(mib: int) -> str:
    """MiB in the largest of Slurm's units that is exact: `64G`, `4000M`."""
    for unit in "MGTP":
        if mib % 1024 or not mib or unit == "P":
            return "%d%s" % (mib, unit)
        mib //= 1024
    raise AssertionError("P ends it")
