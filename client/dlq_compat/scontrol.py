"""`scontrol` inside a job: requeue itself, and show what it is."""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Mapping

from dlq_compat import control, delegate, hostlist

_USAGE = "use: scontrol requeue JOB | show hostnames [LIST] | show hostlist LIST | show job [JOB]"


def main(arguments: List[str]) -> int:
    """Exit code 0, or 1 with words on stderr, as Slurm's."""
    words = [
        word for word in arguments if word not in ("-o", "--oneliner", "-d", "--details", "-Q")
    ]
    verb = words[0].lower() if words else ""
    if verb == "requeue" and len(words) > 1:
        return _requeue(words[1:])
    if verb == "show" and len(words) > 1:
        kind = words[1].lower()
        if kind in ("hostnames", "hostname", "hosts"):
            return _hostnames(words[2:])
        if kind == "hostlist":
            print(hostlist.compress(",".join(words[2:]).split(",")))
            return 0
        if kind in ("job", "jobs", "jobid"):
            return _job(words[2:], one_line=len(words) < len(arguments))
    if verb in ("requeue", "hold", "uhold", "release", "suspend", "resume"):
        return delegate.run("scontrol", arguments)
    return _fail("dlq has nothing like `scontrol %s`; %s" % (" ".join(arguments), _USAGE))


def _requeue(words: List[str]) -> int:
    """Its own job: by telling its main process, which needs no identity. Others: as the user."""
    jobs = [job for word in words for job in word.split(",") if job]
    others = [job for job in jobs if job not in own_names(os.environ)]
    if others:
        return delegate.run("scontrol", ["requeue", *jobs])
    if control.tell(os.environ, control.REQUEUE):
        return 0
    return _fail("the main process of this rank does not listen: the job is ending")


def own_names(environ: Mapping[str, str]) -> List[str]:
    """What the job that this runs in is called."""
    names = [environ.get("SLURM_JOB_ID", "")]
    if "SLURM_ARRAY_JOB_ID" in environ:
        names.append("%s_%s" % (environ["SLURM_ARRAY_JOB_ID"], environ["SLURM_ARRAY_TASK_ID"]))
    return [name for name in names if name]


def _hostnames(words: List[str]) -> int:
    text = ",".join(words) or os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        return _fail("there is no SLURM_JOB_NODELIST here: name a list of hosts")
    try:
        for host in hostlist.expand(text):
            print(host)
    except ValueError as error:
        return _fail(str(error))
    return 0


def _job(words: List[str], *, one_line: bool) -> int:
    if not own_names(os.environ) or (words and words[0] not in own_names(os.environ)):
        return delegate.run("scontrol", ["show", "job", *words])
    facts = [f"{key}={value}" for key, value in _facts(os.environ).items() if value]
    print((" " if one_line else "\n   ").join(facts))
    return 0


def _facts(environ: Mapping[str, str]) -> Dict[str, str]:
    """What the job knows of itself, in Slurm's words."""
    named = {
        "JobId": "SLURM_JOB_ID",
        "ArrayJobId": "SLURM_ARRAY_JOB_ID",
        "ArrayTaskId": "SLURM_ARRAY_TASK_ID",
        "JobName": "SLURM_JOB_NAME",
        "UserId": "SLURM_JOB_USER",
        "Partition": "SLURM_JOB_PARTITION",
        "Restarts": "SLURM_RESTART_COUNT",
        "NodeList": "SLURM_JOB_NODELIST",
        "NumNodes": "SLURM_JOB_NUM_NODES",
        "NumTasks": "SLURM_NTASKS",
        "StartTime": "SLURM_JOB_START_TIME",
        "EndTime": "SLURM_JOB_END_TIME",
        "WorkDir": "SLURM_SUBMIT_DIR",
    }
    facts = {key: environ.get(name, "") for key, name in named.items()}
    return {**facts, "JobState": "RUNNING", "Requeue": "1", "Restarts": facts["Restarts"] or "0"}


def _fail(words: str) -> int:
    print("scontrol: error: %s" % words, file=sys.stderr)
    return 1
