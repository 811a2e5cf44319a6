"""The page of `scontrol show job`: one layout, whether the master was asked or the job asks about
itself.
"""

from __future__ import annotations

from typing import Iterator, List, Mapping, Optional, Tuple

UNKNOWN = "Unknown"
NOT_SET = "N/A"
NULL = "(null)"

# Each inner tuple is a line, as Slurm lays it out. Fields without a counterpart in dlq are left
# out.
_LINES: Tuple[Tuple[Tuple[str, str], ...], ...] = (
    (("JobId", ""), ("ArrayJobId", ""), ("ArrayTaskId", ""), ("JobName", NULL)),
    (("UserId", NULL),),
    (("Nice", "0"), ("Account", NULL), ("QOS", NULL)),
    (("JobState", UNKNOWN), ("Reason", "None"), ("Dependency", NULL)),
    (("Requeue", "1"), ("Restarts", "0"), ("BatchFlag", "1"), ("ExitCode", "0:0")),
    (("RunTime", "00:00:00"), ("TimeLimit", "UNLIMITED"), ("TimeMin", NOT_SET)),
    (("SubmitTime", UNKNOWN), ("EligibleTime", UNKNOWN)),
    (("StartTime", UNKNOWN), ("EndTime", UNKNOWN), ("Deadline", NOT_SET)),
    (("Partition", NULL),),
    (("ReqNodeList", NULL), ("ExcNodeList", NULL)),
    (("NodeList", NULL),),
    (("BatchHost", ""),),
    (("NumNodes", "1"), ("NumCPUs", "1"), ("NumTasks", ""), ("CPUs/Task", "")),
    (("TRES", NULL),),
    (("Comment", ""),),
    (("Command", NULL),),
    (("WorkDir", NULL),),
    (("StdErr", NULL),),
    (("StdIn", "/dev/null"),),
    (("StdOut", NULL),),
)


def page(facts: Mapping[str, str], *, one_line: bool) -> str:
    """The page. Unknown fields read as in Slurm, or are left out where Slurm leaves them out."""
    lines = [" ".join(words) for words in _lines(facts) if words]
    return (" " if one_line else "\n   ").join(lines)


def _lines(facts: Mapping[str, str]) -> Iterator[List[str]]:
    for line in _LINES:
        values = ((name, facts.get(name) or default) for name, default in line)
        yield ["%s=%s" % (name, value) for name, value in values if value]


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
    words += ["node=%d" % nodes, "gres/gpu=%d" % gpus]
    return ",".join(words)


def size(mib: int) -> str:
    """MiB in the largest of Slurm's units that is exact: `64G`, `4000M`."""
    for unit in "MGTP":
        if mib % 1024 or not mib or unit == "P":
            return "%d%s" % (mib, unit)
        mib //= 1024
    raise AssertionError("P ends it")
