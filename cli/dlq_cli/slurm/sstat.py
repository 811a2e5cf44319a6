"""`sstat`: memory and CPU time of steps that run, in Slurm's columns.

It asks the master, which has heard of the steps from their first node within the last seconds. A
node that is silent tells nothing new: its last word is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import click

from dlq_cli.app import App
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.accounts.table import AccountColumn, chosen, form_of, print_table
from dlq_cli.slurm.jobs.listing import named
from dlq_cli.slurm.jobs.measures import average_cpu, kib, only_node, only_task
from dlq_cli.slurm.jobs.steps import SeenStep, steps_of
from dlq_cli.slurm.words import Grammar, read
from dlq_common.text.hostlist import compress_hostlist

GRAMMAR = Grammar(
    "sstat",
    {
        "a": "allsteps", "e": "helpformat", "h": "help", "i": "pidformat", "j": "jobs",
        "n": "noheader", "o": "format", "p": "parsable", "P": "parsable2", "v": "verbose",
    },
    frozenset({"jobs", "format", "delimiter"}),
    frozenset(
        {
            "allsteps", "helpformat", "pidformat", "noheader", "parsable", "parsable2", "verbose",
            "noconvert", "usage", "help",
        }
    ),
    takes_words=True,
    same={"fields": "format"},
)  # fmt: skip
_USAGE = "Usage: sstat [options] -j <job(.stepid)>\n\tUse --help for help"
_PID_FIELDS = "JobID,Nodelist,Pids"
_LISTED_WIDTH, _LISTED_EACH = 19, 4


def _unknown(step: SeenStep) -> str:
    """Of what nobody measures."""
    return ""


# In the order of sstat's own page; a negative width is one from the left.
_WIDTHS = {
    "AveCPU": 10, "AveCPUFreq": 10, "AveDiskRead": 12, "AveDiskWrite": 12, "AvePages": 10,
    "AveRSS": 10, "AveVMSize": 10, "ConsumedEnergy": 14, "ConsumedEnergyRaw": 17, "JobID": -12,
    "MaxDiskRead": 12, "MaxDiskReadNode": 15, "MaxDiskReadTask": 15, "MaxDiskWrite": 12,
    "MaxDiskWriteNode": 16, "MaxDiskWriteTask": 16, "MaxPages": 8, "MaxPagesNode": 12,
    "MaxPagesTask": 14, "MaxRSS": 10, "MaxRSSNode": 10, "MaxRSSTask": 10, "MaxVMSize": 10,
    "MaxVMSizeNode": 14, "MaxVMSizeTask": 14, "MinCPU": 10, "MinCPUNode": 10, "MinCPUTask": 10,
    "Nodelist": 20, "NTasks": 8, "Pids": 20, "ReqCPUFreq": 10, "ReqCPUFreqMin": 13,
    "ReqCPUFreqMax": 13, "ReqCPUFreqGov": 13, "TRESUsageInAve": 14, "TRESUsageInMax": 14,
    "TRESUsageInMaxNode": 18, "TRESUsageInMaxTask": 18, "TRESUsageInMin": 14,
    "TRESUsageInMinNode": 18, "TRESUsageInMinTask": 18, "TRESUsageInTot": 14,
    "TRESUsageOutAve": 15, "TRESUsageOutMax": 15, "TRESUsageOutMaxNode": 19,
    "TRESUsageOutMaxTask": 19, "TRESUsageOutMin": 15, "TRESUsageOutMinNode": 19,
    "TRESUsageOutMinTask": 19, "TRESUsageOutTot": 15,
}  # fmt: skip
_TEXTS: Mapping[str, Callable[[SeenStep], str]] = {
    "AveCPU": average_cpu,
    "AveRSS": lambda step: only_task(step, kib(step.max_rss_bytes)),
    "JobID": lambda step: step.shown_id,
    "MaxRSS": lambda step: kib(step.max_rss_bytes),
    "MaxRSSNode": lambda step: only_node(step) if step.max_rss_bytes else "",
    "MaxRSSTask": lambda step: only_task(step, "0" if step.max_rss_bytes else ""),
    "MinCPU": lambda step: only_task(step, average_cpu(step)),
    "MinCPUNode": lambda step: only_task(step, only_node(step)),
    "MinCPUTask": lambda step: only_task(step, "0"),
    "Nodelist": lambda step: compress_hostlist(step.nodes),
    "NTasks": lambda step: str(step.tasks),
}
COLUMNS: Mapping[str, AccountColumn[SeenStep]] = {
    name.lower(): AccountColumn(name, width, _TEXTS.get(name, _unknown))
    for name, width in _WIDTHS.items()
}
DEFAULT = (
    "JobID,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,"
    "MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,"
    "AveCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,"
    "MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,"
    "AveDiskWrite,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,"
    "TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,"
    "TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,"
    "TRESUsageOutMinTask,TRESUsageOutTot"
)


def main(app: App, words: Sequence[str]) -> None:
    """A line for each step that is asked for and runs. A missing one is a line on stderr alone."""
    given = read(GRAMMAR, words)
    if {"helpformat", "usage", "help"} & given.options.keys():
        click.echo(_help() if "helpformat" in given.options else _USAGE)
        return
    default = _PID_FIELDS if "pidformat" in given.options else DEFAULT
    columns, missing = chosen(COLUMNS, given.listed("format") or default.split(","))
    if missing:
        raise SlurmSays(f'sstat: error: Invalid field requested: "{missing[:40]}"')
    ids = given.listed("jobs") + [part for word in given.rest for part in word.split(",") if part]
    if not ids:
        raise SlurmSays("sstat: error: You didn't give me any jobs to stat.")
    for word in ids:
        if not word[:1].isdecimal():
            raise SlurmSays(f"sstat: fatal: Bad job/step specified: {word[:40]}")
    steps = list(_found(app, ids, every="allsteps" in given.options))
    print_table(columns, steps, form_of(given.options))


def _found(app: App, ids: Sequence[str], *, every: bool) -> Iterator[SeenStep]:
    """The steps of each word, in the order of the words."""
    jobs = named(app, ids, detailed=True)
    by_job = steps_of(app, jobs, running_only=True)
    for word in ids:
        job, dot, number = word.partition(".")
        steps = [one for found in by_job.values() for one in found if one.is_named(job)]
        wanted = [one for one in steps if one.is_named(word)]
        if not any(job in one.names for one in jobs):
            _complain(f"couldn't get steps for job {job}")
        elif dot and not wanted:
            _complain(f"StepId={job}.{number} not found running.")
        elif not steps:
            _complain(f"No steps running for job {job}")
        elif dot or every:
            yield from wanted
        else:
            yield min(steps, key=lambda one: one.is_batch)


def _complain(what: str) -> None:
    click.echo(clean_line(f"sstat: error: {what[:120]}"), err=True)


def _help() -> str:
    names = list(_WIDTHS)
    rows = (names[at : at + _LISTED_EACH] for at in range(0, len(names), _LISTED_EACH))
    return "\n".join(" ".join(name.ljust(_LISTED_WIDTH) for name in row) for row in rows)
