"""`scontrol` inside a job: requeue it, and show it without a master. All else asks the master."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Dict, List, Mapping

from dlq_compat import control, delegate, hostlist, job_page

_ONE_LINE = ("-o", "--oneliner")


def main(arguments: List[str]) -> int:
    """Exit code 0, or 1 with words on stderr, as Slurm's."""
    words = [word for word in arguments if word not in (*_ONE_LINE, "-d", "--details", "-Q")]
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
            return _job(words[2:], arguments)
    return delegate.run("scontrol", arguments)


def _requeue(words: List[str]) -> int:
    """Its own job: by telling its main process, which needs no identity. Others: as the user."""
    jobs = [job for word in words for job in word.split(",") if job]
    if not jobs:  # of a variable that is not set: not of this job
        return _fail("Invalid job id specified")
    if any(job not in own_names(os.environ) for job in jobs):
        return delegate.run("scontrol", ["requeue", *jobs])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes for all of the step, and so for us
    if control.tell(os.environ, control.REQUEUE):
        return 0
    return _fail("the main process of this rank does not listen: the job is ending")


def own_names(environ: Mapping[str, str]) -> List[str]:
    """The names of the job around this process."""
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


def _job(words: List[str], arguments: List[str]) -> int:
    """The master knows more than the job. It is the job's own word only where nobody else has one.

    A variable may name a job that this process is no part of: `salloc` sets it on its host.
    """
    own = own_names(os.environ)
    if os.environ.get("DLQ_JOB_ID", "") not in own or (words and words[0] not in own):
        return delegate.run("scontrol", arguments)
    told = delegate.asked("scontrol", arguments)
    if told is None:
        print("scontrol: no answer of the master: this is what the job knows", file=sys.stderr)
        one_line = any(word in _ONE_LINE for word in arguments)
        told = (job_page.page(facts(os.environ, time.time()), one_line=one_line) + "\n").encode()
    sys.stdout.buffer.write(told)
    return 0


def facts(environ: Mapping[str, str], now_s: float) -> Dict[str, str]:
    """The facts that the job knows of itself, by the names of `scontrol show job`."""
    told = {key: environ.get(name, "") for key, name in _NAMED.items()}
    start_s, end_s = _number(environ, "START_TIME"), _number(environ, "END_TIME")
    nodes, tasks = _number(environ, "NUM_NODES") or 1, _number(environ, "NTASKS", "SLURM_") or 1
    cpus = nodes * (_number(environ, "CPUS_ON_NODE", "SLURM_") or 1)
    memory = nodes * _number(environ, "MEM_PER_NODE", "SLURM_")
    gpus = nodes * _number(environ, "GPUS_ON_NODE", "SLURM_")
    return {
        **told,
        "UserId": "%s(%s)" % (environ.get("SLURM_JOB_USER", ""), environ.get("SLURM_JOB_UID", "")),
        "JobState": "RUNNING",
        "Restarts": told["Restarts"] or "0",
        "RunTime": job_page.clock(now_s - start_s if start_s else 0),
        "TimeLimit": job_page.clock(end_s - start_s if end_s else None),
        "StartTime": _local(start_s),
        "EndTime": _local(end_s),
        "BatchHost": next(iter(hostlist.expand(told["NodeList"])), ""),
        "NumCPUs": str(cpus),
        "NumTasks": str(tasks),
        "CPUs/Task": str(max(1, cpus // tasks)),
        "TRES": job_page.tres(nodes, cpus, memory, gpus),
    }


_NAMED = {
    "JobId": "SLURM_JOB_ID",
    "ArrayJobId": "SLURM_ARRAY_JOB_ID",
    "ArrayTaskId": "SLURM_ARRAY_TASK_ID",
    "JobName": "SLURM_JOB_NAME",
    "Partition": "SLURM_JOB_PARTITION",
    "Restarts": "SLURM_RESTART_COUNT",
    "NodeList": "SLURM_JOB_NODELIST",
    "NumNodes": "SLURM_JOB_NUM_NODES",
    "WorkDir": "SLURM_SUBMIT_DIR",
}


def _number(environ: Mapping[str, str], name: str, prefix: str = "SLURM_JOB_") -> int:
    text = environ.get(prefix + name, "")
    return int(text) if text.isdigit() else 0


def _local(at_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s)) if at_s else job_page.UNKNOWN


def _fail(words: str) -> int:
    print("scontrol: error: %s" % words, file=sys.stderr)
    return 1
