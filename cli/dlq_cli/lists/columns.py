"""The columns of `dlq status`: names, Slurm letters, texts and sort keys; and `-o` that picks
them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq_cli.facts.job import named_types
from dlq_cli.lists.slurm_states import code, queue_state
from dlq_cli.lists.tasks import id_key, shown_id
from dlq_cli.output.render import Cell, OutputLook, clean_line, number, when
from dlq_cli.text.elastic import gpus_now
from dlq_cli.text.foreseen import short_range
from dlq_cli.text.promises import slack, standing, target_s
from dlq_cli.words import ENDED, HOLD_KINDS, shown_state
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.sizes import format_sizes
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import approximate_size, format_duration
from dlq_common.text.wire import from_duration, from_timestamp

WAITING = frozenset({"pending", "queued"})

Text = Callable[[job_pb2.Job, OutputLook], str]
SortKey = Callable[[job_pb2.Job], str | float | tuple[int, int]]


class Column(NamedTuple):
    """One column of jobs."""

    cell: Cell
    text: Text
    sort: SortKey | None = None  # None: by its text


def where(job: job_pb2.Job, look: OutputLook) -> str:
    """The nodes of a living job, else in brackets the reason for waiting; empty where that is
    hidden.
    """
    if nodes := job.node_ids:
        label = " [virtual]" if job.virtual_devices else ""
        cause = f" ({job.stop_cause})" if job.stop_cause else ""
        return compress_hostlist(nodes) + label + cause
    return "" if job.redacted else f"({reason(job)})"


def where_beside_state(job: job_pb2.Job, look: OutputLook) -> str:
    """The same beside the state, without repeating it."""
    text = where(job, look)
    return "" if text == f"({shown_state(job)})" else text


def reason(job: job_pb2.Job, _look: OutputLook | None = None) -> str:
    """One word or two on why a job does not run."""
    state = shown_state(job)
    if state in WAITING:
        return job.stop_cause or job.wait_code or "waiting"
    if state == "held":
        kind = HOLD_KINDS.get(job.hold_kind) or "held"
        return f"{kind}: {job.hold_reason}" if job.hold_reason else kind
    if state in ENDED:
        return ", ".join(filter(None, (job.end_reason or state, exit_text(job))))
    return state


def exit_text(job: job_pb2.Job) -> str:
    """How the job's failing rank ended, empty when none failed."""
    if job.exit_signal:
        return f"signal {job.exit_signal}"
    return f"exit {job.exit_code}" if job.exit_code else ""


def progress(job: job_pb2.Job, _look: OutputLook) -> str:
    """Steps done of all, and the loss."""
    if not job.HasField("progress") or not job.progress.HasField("step"):
        return ""
    steps = str(job.progress.step)
    if job.progress.HasField("total_step_count"):
        steps += f"/{job.progress.total_step_count}"
    loss = f" loss {job.progress.loss:.4g}" if job.progress.HasField("loss") else ""
    return steps + loss


def run_s(job: job_pb2.Job) -> float:
    """Seconds run, all attempts."""
    return from_duration(job.run_duration)


def left_s(job: job_pb2.Job) -> float:
    """Seconds of running that a time limit leaves it; a master of before says nothing of it."""
    if job.HasField("time_left_duration"):
        return from_duration(job.time_left_duration)
    return from_duration(job.time_limit_duration) - run_s(job)


def _time_limit(job: job_pb2.Job, _look: OutputLook) -> str:
    if not job.HasField("time_limit_duration"):
        return "unlimited"
    return format_duration(from_duration(job.time_limit_duration))


def _time_left(job: job_pb2.Job, _look: OutputLook) -> str:
    if not job.HasField("time_limit_duration"):
        return "unlimited"
    return format_duration(left_s(job))


def _instant(field: str) -> Text:
    def text(job: job_pb2.Job, look: OutputLook) -> str:
        return when(from_timestamp(getattr(job, field)), look) if job.HasField(field) else ""  # type: ignore[arg-type]  # the names are checked by a test

    return text


def _start(job: job_pb2.Job, look: OutputLook) -> str:
    """The time of its first start; for a waiting job the forecast of its next start, if there is
    one.
    """
    if job.HasField("start_estimate"):
        return short_range(job.start_estimate, look)
    return _instant("start_time")(job, look)


def _start_key(job: job_pb2.Job) -> float:
    if job.HasField("start_estimate"):
        return from_timestamp(job.start_estimate.likely_time)
    return from_timestamp(job.start_time)


def _instant_key(field: str) -> SortKey:
    return lambda job: from_timestamp(getattr(job, field))


def _nodes(job: job_pb2.Job, _look: OutputLook) -> str:
    if job.node_ids:
        return str(len(job.node_ids))
    return str(job.resources.node_count) if job.resources.HasField("node_count") else ""


def _memory(job: job_pb2.Job, _look: OutputLook) -> str:
    limit = job.resources.memory_limit_bytes
    return approximate_size(limit) if limit else ""


def cores_of(job: job_pb2.Job) -> float:
    """Its cores if it has no GPUs, all of them, else its limit on each node; 0: it has none."""
    return job.held_core_count or job.resources.core_count or job.resources.cpu_limit


def _deadline(job: job_pb2.Job, look: OutputLook) -> str:
    return when(target_s(job.promise), look) if job.HasField("promise") else ""


def _deadline_key(job: job_pb2.Job) -> float:
    return target_s(job.promise) if job.HasField("promise") else math.inf


def _slack_key(job: job_pb2.Job) -> float:
    known = job.promise.HasField("slack_duration")
    return from_duration(job.promise.slack_duration) if known else math.inf


COLUMNS: Mapping[str, Column] = {
    "id": Column(Cell("JOB_ID", right=True), lambda j, _: shown_id(j), id_key),
    "name": Column(Cell("NAME", most=32, least=8), lambda j, _: j.name),
    "user": Column(Cell("USER", least=6, drop=4), lambda j, _: j.user),
    "queue": Column(Cell("QUEUE", least=6, drop=8), lambda j, _: j.queue),
    "team": Column(Cell("TEAM"), lambda j, _: j.team),
    "state": Column(Cell("STATE", state=True), lambda j, _: shown_state(j)),
    "code": Column(Cell("ST"), lambda j, _: code(j)),
    "gpus": Column(
        Cell("GPUS", right=True),
        lambda j, _: str(gpus_now(j)),
        gpus_now,
    ),
    "sizes": Column(
        Cell("SIZES", least=5, drop=6), lambda j, _: format_sizes(j.elastic.gpu_counts)
    ),
    "gpu_type": Column(
        Cell("GPU_TYPE"), lambda j, _: j.gpu_type or ",".join(named_types(j.resources))
    ),
    "nodes": Column(
        Cell("NODES", right=True), _nodes, lambda j: len(j.node_ids) or j.resources.node_count
    ),
    "nodelist": Column(Cell("NODELIST"), lambda j, _: compress_hostlist(j.node_ids)),
    "cpus": Column(
        Cell("CPUS", right=True),
        lambda j, _: number(cores_of(j)) if cores_of(j) else "",
        lambda j: cores_of(j),
    ),
    "memory": Column(Cell("MEMORY", right=True), _memory, lambda j: j.resources.memory_limit_bytes),
    "time": Column(Cell("TIME", right=True), lambda j, _: format_duration(run_s(j)), run_s),
    "time_limit": Column(
        Cell("TIME_LIMIT", right=True),
        _time_limit,
        lambda j: from_duration(j.time_limit_duration),
    ),
    "time_left": Column(Cell("TIME_LEFT", right=True), _time_left),
    "submit": Column(Cell("SUBMIT"), _instant("submit_time"), _instant_key("submit_time")),
    "start": Column(Cell("START", least=9, drop=5), _start, _start_key),
    "end": Column(Cell("END"), _instant("end_time"), _instant_key("end_time")),
    "level": Column(Cell("LEVEL", right=True), lambda j, _: str(j.level), lambda j: j.level),
    "attempts": Column(
        Cell("ATTEMPTS", right=True), lambda j, _: str(j.attempt_count), lambda j: j.attempt_count
    ),
    "preemptions": Column(
        Cell("PREEMPTIONS", right=True, drop=7),
        lambda j, _: str(j.preemption_count),
        lambda j: j.preemption_count,
    ),
    "progress": Column(Cell("PROGRESS", least=8, drop=7), progress),
    "deadline": Column(Cell("DEADLINE"), _deadline, _deadline_key),
    "slack": Column(Cell("SLACK", right=True, drop=6), lambda j, _: slack(j.promise), _slack_key),
    "promise": Column(Cell("PROMISE", least=8, drop=5), lambda j, _: standing(j.promise)),
    "reason": Column(Cell("REASON"), reason),
    "exit": Column(
        Cell("EXIT"),
        # As in sacct: the code, and the signal that ended it instead.
        lambda j, _: (
            f"{j.exit_code}:{j.exit_signal}" if j.HasField("exit_code") or j.exit_signal else ""
        ),
    ),
    "where": Column(Cell("NODES(REASON)", least=20, drop=3), where_beside_state),
}


def default_columns(jobs: Iterable[job_pb2.Job]) -> Sequence[str]:
    """`DEFAULT`, with the sizes where any of the jobs is elastic, and the cores where any has no
    GPUs. With the slack where any has some, or none.
    """
    listed = list(jobs)
    elastic = any(job.HasField("elastic") for job in listed)
    cores = any(job.resources.core_count for job in listed)
    late = any(job.HasField("promise") and job.promise.HasField("slack_duration") for job in listed)
    if not elastic and not late and not cores:
        return DEFAULT
    found: list[str] = []
    for name in DEFAULT:
        found += ["promise", "slack"] if late and name == "where" else []
        found += [name, "sizes"] if elastic and name == "gpus" else [name]
        found += ["cpus"] if cores and name == "gpus" else []
    return found


DEFAULT = ("id", "name", "user", "queue", "state", "gpus", "time", "start", "progress", "where")

# squeue's letters for `-o "%.18i %j"`.
_NAMES = {
    "i": "id", "A": "id", "F": "id", "j": "name", "u": "user", "P": "queue", "t": "code",
    "M": "time", "l": "time_limit", "L": "time_left", "D": "nodes", "N": "nodelist",
    "R": "where", "r": "reason", "S": "start", "V": "submit", "e": "end", "C": "cpus",
    "m": "memory", "b": "gpus",
}  # fmt: skip
LETTERS: Mapping[str, Column] = {
    **{letter: COLUMNS[name] for letter, name in _NAMES.items()},
    "R": Column(Cell("NODES(REASON)"), where),
    # In Slurm's words: scripts with %T parse PENDING and RUNNING.
    "T": Column(Cell("STATE"), lambda j, _: queue_state(j)),
}
_LETTER = re.compile(r"%(\.?)(\d*)([A-Za-z])")


class LetterFormat(NamedTuple):
    """A `-o` in squeue's letters: text between them is kept, widths pad and cut as there."""

    text: str

    def row(self, job: job_pb2.Job, look: OutputLook) -> str:
        """The line of one job."""
        return self._filled(lambda column: clean_line(column.text(job, look)))

    def heading(self) -> str:
        """The line above."""
        return self._filled(lambda column: column.cell.heading)

    def _filled(self, text_of: Callable[[Column], str]) -> str:
        def fill(match: re.Match[str]) -> str:
            text, width = text_of(LETTERS[match[3]]), int(match[2] or 0)
            if not width:
                return text
            return text[:width].rjust(width) if match[1] else text[:width].ljust(width)

        return _LETTER.sub(fill, self.text).rstrip()


def parse_format(text: str) -> Sequence[str] | LetterFormat:
    """Column names of `id,name,state`, or squeue's letters; InvalidRequest for others."""
    if "%" in text:
        for match in _LETTER.finditer(text):
            if match[3] not in LETTERS:
                raise InvalidRequest(
                    f"-o: there is no %{match[3]}", field="-o", hint="letters: " + "".join(LETTERS)
                )
        return LetterFormat(text)
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        _known(name, "-o")
    return names or DEFAULT


def sort_jobs(jobs: Sequence[job_pb2.Job], text: str, look: OutputLook) -> list[job_pb2.Job]:
    """Jobs by some columns, `-` before a name for falling; the last named counts least."""
    ordered = list(jobs)
    for word in reversed([word.strip() for word in text.split(",") if word.strip()]):
        column = _known(word.removeprefix("-").lower(), "--sort")
        key = column.sort or _by_text(column.text, look)
        ordered.sort(key=key, reverse=word.startswith("-"))
    return ordered


def _by_text(text: Text, look: OutputLook) -> SortKey:
    return lambda job: text(job, look)


def _known(name: str, flag: str) -> Column:
    column = COLUMNS.get(name)
    if column is None:
        raise InvalidRequest(
            f"{flag}: there is no column {name[:64]!r}{did_you_mean(name, COLUMNS)}",
            field=flag,
            hint="columns: " + ", ".join(COLUMNS),
        )
    return column
