"""The differences that are meant, each with its reason. docs/internals/slurm-differences.md shows
the table.
"""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """A text that is replaced on both sides before they are compared. An empty one stands for the
    whole answer, and LINES for the order of the lines.
    """

    reason: str
    calls: str  # a regular expression that is found in the call
    text: str = ""
    instead: str = ""
    code: bool = False  # the exit codes differ too
    stream: str = ""  # "out" or "err" alone


LINES = "(lines)"
"""Of calls that name no order themselves."""
_JOB = r"show job"
_WIDE = r"-O jobarrayid,"

EXPLAINED: tuple[Explained, ...] = (
    # --- of several programs
    Explained(
        "dlq adds hints to errors: lines on stderr behind two blanks", ".", r"^  .*\n", stream="err"
    ),
    Explained("`-V` says the version of the words that dlq follows", "-V$|version$"),
    Explained("jobs of equal priority come in the order of their ids", "^squeue", LINES),
    Explained(
        "memory that nobody asked for is the whole node's in Slurm, and none in dlq",
        f"{_JOB}|^sacct|tres-alloc",
        r"mem=\d+G,|,mem=\d+G| +$|(?<=Unknown\|)\d+G(?=\|)|(?<=Unknown\|)0(?=\|)|"
        r"(?<=Unknown\|\d\|)(?:\d+G|0)(?=\|)",
    ),
    Explained(
        "GPUs of a job on one node are those of each node in dlq",
        f"{_JOB}|tres-per-|%b",
        r"TresPer(?:Job|Node)=|(?:N/A|gres:gpu:\d+) *$",
    ),
    Explained(
        "Slurm plans starts by limits; dlq names a start where its twin foresees one",
        f"%S'|%Y'|schednodes|starttime|endtime|--start|{_JOB}",
        r"StartTime=(?: <at> |Unknown )EndTime=(?: <at> |Unknown )| SchedNodeList=\S+|"
        r" *(?:<at>|N/A|NONE|n\[1-2\]|\(null\)) *$|"
        r" *(?:<at>|N/A) *(?=\d )|(?<=\d )(?:n\[1-2\]|\(null\)) +",
    ),
    Explained(
        "each task of an array has an id of its own from the start, so later ids are higher",
        "^sbatch|show job 10_2|-n single",
        r"^JobId=\d+|^\d+$|(?<=Submitted batch job )\d+$|^\d+(?=_\[7\])",
    ),
    Explained(
        "seconds that pass between the two calls",
        "pendingtime|timeleft|%L|-o ALL",
        r"(?<=<run> \|)\d+(?=\|)|\d+(?::\d+)* *$",
    ),
    # --- squeue, sinfo, scontrol
    Explained("dlq has no numbers of associations", "associd", r"\d+ *$"),
    Explained("dlq does not tell which cycle started a job", _JOB, r"Scheduler=\S+"),
    Explained(
        "the signal that a cancel sent is no exit code of the job", f"{_JOB} 9", r"ExitCode=\d+:\d+"
    ),
    Explained("dlq names no numbers of CPUs", "show job -d", r"CPU_IDs=\d*"),
    Explained(
        "agents tell neither load nor free memory nor boot time, and listen on no port",
        "show node|sinfo --json",
        r"CPULoad=\S+|Port=(?: <port> |0 )Version=\S+|OS=Linux.*?(?=\n| *RealMemory)|FreeMem=\S+|"
        r"BootTime=.*?(?=\n| *LastBusyTime)|^\.nodes\[\]\.(?:cpu_load|free_memory) .*\n",
    ),
    Explained("`show step 3.batch` is found; Slurm looks for step 0", r"show step 3\.batch"),
    Explained("`show assoc_mgr` and `show aliases` have nothing to show", "assoc_mgr|aliases"),
    Explained(
        "in Slurm operators alone suspend; in dlq users pause their own jobs",
        "suspend|resume",
        r".+",
        stream="err",
    ),
    Explained(
        "verbs of Slurm's inside are refused by name, with the command of dlq",
        "scontrol (?:top 5|update part|create|delete|reconf|shutdown|takeover|setdebug|reboot|"
        "listpids|token|errnumstr)",
        r".+\n?",
        code=True,
    ),
    Explained(
        "a job without its hold waits again, and says why at once",
        "-j 6 -o",
        r"(?:None|Dependency)$",
    ),
    Explained("a job that was cancelled is not queued again", "requeue 9", r".+\n", code=True),
    # --- accounts
    Explained(
        "of the measures of steps memory and CPU time are kept, not disks and pages",
        "sacct -l",
        r"^2\.batch.*$",
    ),
    Explained(
        "dlq has neither numbers of associations nor Slurm's flags; a reason is that of now",
        "-o ALL",
        r"^(?:lab\|\|\d\|\d\|[^|]*\|)\d+|(?:Sched\w+,)?StartRecieved|(?<=<run> \|\|)\d+(?=\|0:0)|"
        r"(?<=\|normal\|1\|)\w+",
    ),
    Explained("Slurm knows no task of an array that waits", "sacct -j 10_3"),
    Explained(
        "the user root of the account root is Slurm's own",
        "^sacctmgr|^sshare",
        r"^(?:root\|default.*\|root\|1.*|torture\|root\|root| +(?:torture +)?root +root .*)\n",
    ),
    Explained("dlq has no number of Slurm's protocol", "show cluster$", r" (?:9728|0) +(?=1 )"),
    Explained(
        "sacctmgr changes nothing, and entities that dlq does not keep are refused by name",
        "sacctmgr (?:-i|shutdown)|show event|show wckey",
    ),
    Explained(
        "FairShare is Slurm's classic 2^(-usage/share), not a rank in its tree; root has no share",
        "^sshare",
        r"\d\.\d{6}|inf|cpu=0\S*| +(?=\n)| {2,}",
    ),
    Explained("dlq's order is no sum of factors: sprio says so", "^sprio(?: -[lj].*)?$"),
    Explained("sdiag counts jobs since midnight, and no cycles of the scheduler", "^sdiag$"),
    Explained("sreport names the command of dlq that has the figures", "sreport user"),
    Explained(
        "JSON of jobs has a comment, but no measures of steps, no flags and no gres_detail",
        "--json",
        r"^\.jobs\[\]\.(?:steps\[\]\.tres\.(?:requested|consumed)\.|flags\[|gres_detail\[|"
        r"comment\.job ).*\n",
    ),
    # --- submissions
    Explained("a test of a submission names no job and no nodes", "--test-only"),
    Explained("a dependency on a job that is not there is refused", "afterok:999"),
    Explained("a resource that dlq has not is refused by name", "gpu:x:y:z", r".+", stream="err"),
    Explained("durations such as 90s and 1h30m are taken, too", "-t 90s", code=True),
    Explained("an instant that is none is told once", "--begin=foo", r"^Invalid time.*\n"),
    Explained(
        "srun and salloc name in dlq's words what is not there",
        "^srun|^salloc",
        r".+\n",
        stream="err",
    ),
    Explained("a step that is not there is told once", r"scancel 3\.0", r".+\n", stream="err"),
)
