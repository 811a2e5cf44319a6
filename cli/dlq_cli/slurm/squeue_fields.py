"""squeue's columns: letters of `-o`, names of `-O`, headings and texts as Slurm prints them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq_cli.lists.slurm_states import code, queue_state
from dlq_cli.lists.tasks import id_key, shown_id
from dlq_cli.output.render import clean_line
from dlq_cli.slurm import job_words as words
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import NOT_SET, NULL, size

Text = Callable[[job_pb2.Job], str]


class SqueueField(NamedTuple):
    """One column. Without a letter it has a name alone."""

    heading: str
    letter: str
    names: tuple[str, ...]  # of -O, lower-case
    text: Text


class SqueueColumn(NamedTuple):
    """A field with its width; 0: as wide as its text."""

    field: SqueueField
    width: int
    right: bool
    before: str  # the text before it in the format
    after: str = ""

    def fill(self, text: str) -> str:
        """Cut and padded as Slurm does."""
        if self.width:
            cut = text[: self.width]
            text = cut.rjust(self.width) if self.right else cut.ljust(self.width)
        return self.before + text + self.after


def _array_id(job: job_pb2.Job) -> str:
    return job.array_task.array_id if job.HasField("array_task") else job.job_id


def _task_id(job: job_pb2.Job) -> str:
    """`4`, of a line that stands for many `4-99%4`."""
    if not job.HasField("array_task"):
        return NOT_SET
    return shown_id(job).partition("_")[2].strip("[]")


def _raw_id(job: job_pb2.Job) -> str:
    return job.job_id.partition("_")[0]


def _left(job: job_pb2.Job) -> str:
    limit_s = words.limit_s(job)
    return words.short(None if limit_s is None else limit_s - words.run_s(job))


def _end(job: job_pb2.Job) -> str:
    if job.HasField("end_time"):
        return words.instant(job.end_time, NOT_SET)
    return NOT_SET


def _start(job: job_pb2.Job) -> str:
    if code(job) == "PD":
        known = job.HasField("start_estimate")
        return words.instant(job.start_estimate.likely_time if known else job.begin_time, NOT_SET)
    return words.instant(job.start_time, NOT_SET)


def _priority(job: job_pb2.Job) -> str:
    """dlq's order is no number: 0 on hold, as there, else 1."""
    return "0" if words.reason(job).startswith(("JobHeld", "JobHold")) else "1"


_FIELDS = (
    SqueueField("JOBID", "i", ("jobarrayid",), shown_id),
    SqueueField("JOBID", "A", ("jobid",), _raw_id),
    SqueueField("ARRAY_JOB_ID", "F", ("arrayjobid",), _array_id),
    SqueueField("ARRAY_TASK_ID", "K", ("arraytaskid",), _task_id),
    SqueueField("NAME", "j", ("name", "jobname"), lambda job: job.name),
    SqueueField("USER", "u", ("username",), lambda job: job.user),
    SqueueField("USER", "U", ("userid",), lambda job: str(words.uid(job.user))),
    SqueueField("PARTITION", "P", ("partition",), lambda job: job.queue),
    SqueueField("ACCOUNT", "a", ("account",), lambda job: job.team or NULL),
    SqueueField("QOS", "q", ("qos",), lambda job: NULL),
    SqueueField("RESERVATION", "v", ("reservation",), lambda job: NULL),
    SqueueField("ST", "t", ("statecompact",), code),
    SqueueField("STATE", "T", ("state",), queue_state),
    SqueueField("TIME", "M", ("timeused",), lambda job: words.short(words.run_s(job))),
    SqueueField("TIME_LIMIT", "l", ("timelimit",), lambda job: words.short(words.limit_s(job))),
    SqueueField("TIME_LEFT", "L", ("timeleft",), _left),
    SqueueField("NODES", "D", ("numnodes",), lambda job: str(words.node_count(job))),
    SqueueField("CPUS", "C", ("numcpus",), lambda job: str(words.cpus(job))),
    SqueueField("MIN_CPUS", "c", ("mincpus",), lambda j: str(words.cpus(j) // words.node_count(j))),
    SqueueField("MIN_MEMORY", "m", ("minmemory",), lambda j: size(m) if (m := words.memory_mib(j)) else "0"),  # noqa: E501
    SqueueField("TRES_PER_NODE", "b", ("tres-per-node", "gres"), words.gpus_per_node),
    SqueueField("NODELIST", "N", ("nodelist",), words.nodes),
    SqueueField("EXEC_HOST", "B", ("batchhost",), lambda job: next(iter(job.node_ids), NOT_SET)),
    SqueueField("REQ_NODES", "n", ("reqnodes",), lambda j: compress_hostlist(j.resources.node_ids)),
    SqueueField("EXC_NODES", "x", ("excnodes",), lambda j: compress_hostlist(j.resources.excluded_node_ids)),  # noqa: E501
    SqueueField("SCHEDNODES", "Y", ("schednodes",), lambda job: NULL),
    SqueueField("REASON", "r", ("reason",), words.reason),
    SqueueField("NODELIST(REASON)", "R", ("reasonlist",), words.place),
    SqueueField("START_TIME", "S", ("starttime",), _start),
    SqueueField("END_TIME", "e", ("endtime",), _end),
    SqueueField("SUBMIT_TIME", "V", ("submittime",), lambda job: words.instant(job.submit_time, NOT_SET)),  # noqa: E501
    SqueueField("DEPENDENCY", "E", ("dependency",), lambda job: job.dependency or NULL),
    SqueueField("NICE", "y", ("nice",), lambda job: str(job.nice)),
    SqueueField("PRIORITY", "Q", ("prioritylong",), _priority),
    SqueueField("RESTARTCNT", "", ("restartcnt",), lambda job: str(max(0, job.attempt_count - 1))),
)  # fmt: skip
BY_LETTER: Mapping[str, SqueueField] = {field.letter: field for field in _FIELDS if field.letter}
BY_NAME: Mapping[str, SqueueField] = {name: field for field in _FIELDS for name in field.names}

_LETTER = re.compile(r"(.*?)%(\.?)(\d*)([A-Za-z])", re.DOTALL)
_NAME_WIDTH = 20  # of -O, where none is said
_NAMED = re.compile(r"([A-Za-z-]+)(?::(\.?)(\d*)(.*))?", re.DOTALL)


def by_letters(text: str) -> list[SqueueColumn]:
    """The columns of `-o '%.18i %j'`. InvalidRequest for a letter that is not there."""
    columns: list[SqueueColumn] = []
    end = 0
    for found in _LETTER.finditer(text):
        before, right, width, letter = found.groups()
        field = BY_LETTER.get(letter)
        if field is None:
            raise InvalidRequest(
                f"squeue: dlq's stand-in has no %{letter}", hint="letters: " + "".join(BY_LETTER)
            )
        columns.append(SqueueColumn(field, int(width or 0), bool(right), before))
        end = found.end()
    if not columns:
        raise InvalidRequest("squeue: --format takes squeue's letters, such as '%i %t'")
    columns[-1] = columns[-1]._replace(after=text[end:])
    return columns


def by_names(text: str) -> list[SqueueColumn]:
    """The columns of `-O jobid:10,name:.20,state`. InvalidRequest for a name that is not there."""
    columns = []
    for word in filter(None, text.split(",")):
        found = _NAMED.fullmatch(word.strip())
        field = BY_NAME.get(found[1].lower()) if found else None
        if found is None or field is None:
            raise InvalidRequest(
                f"squeue: dlq's stand-in has no field {word[:40]!r}",
                hint="fields: " + " ".join(sorted(BY_NAME)),
            )
        width = int(found[3]) if found[3] else 0 if found[2] is not None else _NAME_WIDTH
        columns.append(SqueueColumn(field, width, found[2] == ".", "", found[4] or ""))
    if not columns:
        raise InvalidRequest("squeue: --Format takes names, such as JobID,State")
    return columns


def line(columns: Sequence[SqueueColumn], text_of: Callable[[SqueueField], str]) -> str:
    return "".join(column.fill(clean_line(text_of(column.field))) for column in columns).rstrip()


def in_order(jobs: Sequence[job_pb2.Job], text: str) -> list[job_pb2.Job]:
    """Sort as `-S P,-t,i` says: letters, `-` before one for falling; the last one counts least."""
    ordered = sorted(jobs, key=_by_id)
    for word in reversed([each.strip() for each in text.split(",") if each.strip()]):
        field = BY_LETTER.get(word.lstrip("+-"))
        if field is None:
            raise InvalidRequest(f"squeue: dlq's stand-in cannot sort by {word[:40]!r}")
        ordered.sort(key=lambda job: _key(job, field), reverse=word.startswith("-"))
    return ordered


def _key(job: job_pb2.Job, field: SqueueField) -> tuple[float, str]:
    seconds = {"M": words.run_s(job), "l": words.limit_s(job) or 0.0}
    if field.letter in seconds:
        return seconds[field.letter], ""
    text = field.text(job)
    return (float(text), "") if text.isdecimal() else (0.0, text)


def _by_id(job: job_pb2.Job) -> tuple[int, int]:
    return id_key(job) if job.job_id.isdecimal() else (int(_array_id(job)), 0)
