"""sacct's fields: names, widths and texts as Slurm prints them, of a job and of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.accounts import texts
from dlq_cli.slurm.accounts.row import AccountRow
from dlq_cli.slurm.job_words import UNKNOWN
from dlq_cli.slurm.jobs import measures
from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_cli.slurm.words import column_width
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import clock

DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
LONG = (
    "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,"
    "MaxRSSNode,MaxRSSTask,AveRSS,MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,"
    "MinCPUTask,AveCPU,NTasks,AllocCPUS,Elapsed,State,ExitCode,AveCPUFreq,ReqCPUFreqMin,"
    "ReqCPUFreqMax,ReqCPUFreqGov,ReqMem,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,"
    "MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,"
    "ReqTRES,AllocTRES,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,"
    "TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutMax,"
    "TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutAve,TRESUsageOutTot"
)
Text = Callable[[AccountRow], str]


class SacctField(NamedTuple):
    """One column: its width (negative: from the left) and the text of a row."""

    width: int
    text: Text


def _both(width: int, job: Text, step: Text) -> SacctField:
    return SacctField(width, lambda row: step(row) if row.step else job(row))


def _job(width: int, text: Text) -> SacctField:
    """A field that steps leave empty."""
    return _both(width, text, _none)


def _step(width: int, text: Text) -> SacctField:
    return _both(width, _none, text)


def _same(width: int, text: Text) -> SacctField:
    return SacctField(width, text)


def _none(row: AccountRow) -> str:
    return ""


def _always(text: str) -> Text:
    return lambda row: text


def _instant(at_s: float) -> str:
    return words.instant_s(at_s, UNKNOWN)


def _rss(step: SeenStep) -> str:
    return measures.kib(step.max_rss_bytes)


# Measures that nobody takes here read empty, as in Slurm for a step that has not ended.
_UNMEASURED = {
    "AveDiskRead": 14, "AveDiskWrite": 14, "AvePages": 10, "AveVMSize": 10,
    "MaxDiskRead": 12, "MaxDiskReadNode": 15, "MaxDiskReadTask": 15, "MaxDiskWrite": 12,
    "MaxDiskWriteNode": 16, "MaxDiskWriteTask": 16, "MaxPages": 8, "MaxPagesNode": 12,
    "MaxPagesTask": 14, "MaxVMSize": 10, "MaxVMSizeNode": 14,
    "MaxVMSizeTask": 14, "MinCPUNode": 10, "MinCPUTask": 10, "TRESUsageInAve": 14,
    "TRESUsageInMax": 14, "TRESUsageInMaxNode": 18, "TRESUsageInMaxTask": 18, "TRESUsageInMin": 14,
    "TRESUsageInMinNode": 18, "TRESUsageInMinTask": 18, "TRESUsageInTot": 14,
    "TRESUsageOutAve": 15, "TRESUsageOutMax": 15, "TRESUsageOutMaxNode": 19,
    "TRESUsageOutMaxTask": 19, "TRESUsageOutMin": 15, "TRESUsageOutMinNode": 19,
    "TRESUsageOutMinTask": 19, "TRESUsageOutTot": 15,
}  # fmt: skip
# Things of Slurm's that no job of dlq has.
_ABSENT = {
    "AdminComment": 15, "BlockID": 16, "Flags": 19, "McsLabel": 12, "Reservation": 20,
    "ReservationId": 8, "SystemComment": 15, "WCKey": 10,
}  # fmt: skip
_KNOWN: Mapping[str, SacctField] = {
    "Account": _same(10, lambda row: row.job.account),
    "AllocCPUS": _same(10, lambda row: str(row.cpus)),
    "AllocNodes": _same(10, lambda row: str(row.node_count)),
    "AllocTRES": _same(10, texts.tres_given),
    "AssocID": _same(7, _always("0")),
    "AveCPUFreq": _step(10, _always("0")),
    "AveCPU": _step(10, texts.of_ended(measures.average_cpu)),
    "AveRSS": _step(10, texts.of_ended(lambda step: measures.only_task(step, _rss(step)))),
    "Cluster": _same(10, lambda row: row.job.cluster),
    "Comment": _job(14, lambda row: row.job.comment),
    "Constraints": _job(19, lambda row: texts.constraint(row.job)),
    "ConsumedEnergy": _both(14, texts.energy, _always("0")),
    "ConsumedEnergyRaw": _both(17, texts.energy, _always("0")),
    "Container": _job(19, lambda row: row.job.spec.container.image),
    "CPUTime": _same(10, lambda row: clock(row.elapsed_s * row.cpus)),
    "CPUTimeRAW": _same(10, lambda row: str(row.elapsed_s * row.cpus)),
    "DBIndex": _same(10, lambda row: row.job.raw_id),
    "DerivedExitCode": _job(15, texts.derived_exit),
    "Elapsed": _same(10, lambda row: clock(row.elapsed_s)),
    "ElapsedRaw": _same(10, lambda row: str(row.elapsed_s)),
    "Eligible": _same(19, lambda row: _instant(row.eligible_s)),
    "End": _same(19, lambda row: _instant(row.end_s)),
    "ExitCode": _same(8, lambda row: row.exit_text),
    "GID": _job(6, lambda row: str(row.job.gid)),
    "Group": _job(9, lambda row: row.job.group),
    "JobID": _same(-12, lambda row: row.shown_id),
    "JobIDRaw": _same(-12, lambda row: row.raw_id),
    "JobName": _same(10, lambda row: row.name),
    "Layout": _step(9, _always("Unknown")),
    "MaxRSS": _step(10, texts.of_ended(_rss)),
    "MaxRSSNode": _step(10, texts.of_ended(measures.only_node)),
    "MaxRSSTask": _step(10, texts.of_ended(lambda step: measures.only_task(step, "0"))),
    "MinCPU": _step(
        10, texts.of_ended(lambda step: measures.only_task(step, measures.average_cpu(step)))
    ),
    "NCPUS": _same(10, lambda row: str(row.cpus)),
    "NNodes": _same(8, lambda row: str(row.node_count or row.job.node_count)),
    "NodeList": _same(15, lambda row: compress_hostlist(row.nodes) or "None assigned"),
    "NTasks": _step(8, lambda row: str(row.tasks)),
    "Partition": _job(10, lambda row: row.job.job.queue),
    "Priority": _job(10, lambda row: str(row.job.priority)),
    "QOS": _job(10, lambda row: row.job.qos),
    "QOSRAW": _job(6, _always("1")),
    "Reason": _job(22, lambda row: row.job.reason),
    "ReqCPUFreq": _both(10, _always(UNKNOWN), _always("0")),
    "ReqCPUFreqGov": _both(13, _always(UNKNOWN), _always("0")),
    "ReqCPUFreqMax": _both(13, _always(UNKNOWN), _always("0")),
    "ReqCPUFreqMin": _both(13, _always(UNKNOWN), _always("0")),
    "ReqCPUS": _same(8, lambda row: str(row.cpus)),
    "ReqMem": _job(10, lambda row: texts.memory(row.job)),
    "ReqNodes": _same(8, lambda row: str(row.node_count or row.job.node_count)),
    "ReqTRES": _job(10, lambda row: texts.tres_asked(row.job)),
    "Reserved": _job(10, lambda row: clock(row.waited_s)),
    "ResvCPU": _job(10, lambda row: clock(row.waited_s * row.cpus)),
    "ResvCPURAW": _job(10, lambda row: str(row.waited_s * row.cpus)),
    "Start": _same(19, texts.start),
    "State": _same(10, lambda row: row.state),
    "Submit": _same(19, lambda row: _instant(row.start_s if row.step else row.job.submit_s)),
    "SubmitLine": _job(20, lambda row: row.job.spec.origin.command_line),
    "Suspended": _same(10, _always("00:00:00")),
    "SystemCPU": _same(10, _always("00:00:00")),
    "Timelimit": _job(10, lambda row: texts.limit(row.job, clock)),
    "TimelimitRaw": _job(10, lambda row: texts.limit(row.job, lambda s: str(int(s) // 60))),
    "TotalCPU": _same(10, texts.cpu_time),
    "UID": _job(6, lambda row: str(row.job.uid)),
    "User": _job(9, lambda row: row.job.job.user),
    "UserCPU": _same(10, texts.cpu_time),
    "WCKeyID": _job(10, _always("0")),
    "WorkDir": _job(20, lambda row: row.job.directory),
}
FIELDS: Mapping[str, SacctField] = dict(
    sorted(
        {
            **_KNOWN,
            **{name: _step(width, _none) for name, width in _UNMEASURED.items()},
            **{name: _job(width, _none) for name, width in _ABSENT.items()},
            # An old name of Slurm's, which its help leaves out.
            "Planned": _KNOWN["Reserved"],
        }.items(),
        key=lambda item: item[0].lower(),
    )
)
OF_STEPS = frozenset({"DerivedExitCode", "TotalCPU", "UserCPU"})
"""Fields of a job that its steps tell."""
_UNTOLD = frozenset({"Planned"})
_BY_WORD = {name.lower(): name for name in FIELDS}
_PER_LINE = 4


def helpformat() -> str:
    """The names as `sacct --helpformat` has them, four to a line."""
    names = [f"{name:<19}" for name in FIELDS if name not in _UNTOLD]
    lines = [names[at : at + _PER_LINE] for at in range(0, len(names), _PER_LINE)]
    return "\n" + "\n".join(" ".join(line) for line in lines)


def columns_of(text: str) -> list[tuple[str, int]]:
    """`JobName%20,State`, or all fields. SlurmSays for a name that is none."""
    found: list[tuple[str, int]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.lower() == "all":
            found += [(name, FIELDS[name].width) for name in FIELDS if name not in _UNTOLD]
        else:
            found.append(_column(word))
    return found


def _column(word: str) -> tuple[str, int]:
    """As in Slurm the beginning of a name will do."""
    name, _, width = word.partition("%")
    known = _BY_WORD.get(name.lower())
    if known is None:
        begun = [full for low, full in _BY_WORD.items() if low.startswith(name.lower())]
        if not begun:
            raise SlurmSays(f'sacct: error: Invalid field requested: "{name[:40]}"')
        known = begun[0]
    asked = column_width(width)
    return known, FIELDS[known].width if asked is None else asked
