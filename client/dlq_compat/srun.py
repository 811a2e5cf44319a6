"""`srun` inside a job: the command, once for each of this node's tasks.

dlq runs a batch script on every node of the job, not on the first alone. Each node's `srun` starts
its own part of a step, so that no part must reach another node. A step that is smaller than the job
takes the first nodes; on the others `srun` does nothing and says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from typing import IO, Dict, List, Mapping, NamedTuple, Optional, Union

from dlq_compat import control, hostlist
from dlq_compat.signals import FORWARDED, catch
from dlq_compat.srun_options import SrunOptions, Wrong, read

KILL_WAIT_S = 5.0
_INTERRUPTED = 128

_File = Union[int, IO[bytes], None]


def main(arguments: List[str]) -> int:
    """The exit code of the task that failed first, 128 + n when signal n ended it; with
    --kill-on-bad-exit=0 the highest of all.
    """
    try:
        options = read(arguments)
        step = plan(options, os.environ)
    except (Wrong, ValueError) as error:
        print("srun: error: %s" % error, file=sys.stderr)
        return 1
    if not step.tasks:
        print("srun: not on this node: the step has %d of %s nodes" % (step.nodes, _nodes(os.environ)),  # noqa: E501
              file=sys.stderr)  # fmt: skip
        return 0
    control.tell(os.environ, control.STEP, str(os.getpid()))
    try:
        return RunningStep(options, step).wait()
    except OSError as error:
        where = "%s: " % error.filename if error.filename else ""
        print("srun: error: %s%s" % (where, error.strerror), file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    finally:
        control.tell(os.environ, control.LEFT, str(os.getpid()))


def is_outside(environ: Mapping[str, str]) -> bool:
    """Whether this is no rank of a job: `srun` then asks the master, as `dlq slurm srun`."""
    return "DLQ_JOB_ID" not in environ and control.CONTROL not in environ


class SrunStep(NamedTuple):
    """This node's part of a step: the environments of its tasks."""

    nodes: int
    tasks: List[Dict[str, str]]


def plan(options: SrunOptions, environ: Mapping[str, str]) -> SrunStep:
    """The tasks that run here. Wrong when this is no job, or the step is larger than the job."""
    if "SLURM_JOB_ID" not in environ or "SLURM_NTASKS" not in environ:
        raise Wrong("this is no job with compat = slurm: use sbatch, or dlq submit --compat slurm")
    job_nodes, here = _nodes(environ), int(environ.get("SLURM_NODEID", "0"))
    nodes, each = _shape(options, job_nodes, int(environ["SLURM_NTASKS"]) // job_nodes)
    hosts = hostlist.expand(environ.get("SLURM_JOB_NODELIST", ""))[:nodes]
    if options.nodelist and hostlist.expand(options.nodelist) != hosts:
        raise Wrong(
            "--nodelist=%s: a step here has the first nodes of the job; the address of the first "
            "one is $MASTER_ADDR" % options.nodelist
        )
    if here >= nodes:
        return SrunStep(nodes, [])
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_NTASKS": str(nodes * each),
        "SLURM_NPROCS": str(nodes * each),
        "SLURM_NTASKS_PER_NODE": str(each),
        "SLURM_STEP_NUM_TASKS": str(nodes * each),
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node(nodes, each),
        "SLURM_STEP_NODELIST": hostlist.compress(hosts),
        "SLURM_SRUN_COMM_HOST": environ.get("MASTER_ADDR", ""),
    }
    exported = _exported(options.export, environ)
    return SrunStep(
        nodes, [_task({**exported, **step}, options, here, each, i) for i in range(each)]
    )


def tasks_per_node(nodes: int, each: int) -> str:
    """The tasks of each node, as Slurm writes them: `4(x2)`."""
    return "%d(x%d)" % (each, nodes) if nodes > 1 else str(each)


def _shape(options: SrunOptions, job_nodes: int, job_each: int) -> "tuple[int, int]":
    """Nodes of the step, and tasks of each of them."""
    nodes = options.nodes or job_nodes
    if nodes > job_nodes:
        raise Wrong("--nodes=%d: the job has %d" % (nodes, job_nodes))
    if options.tasks is None:
        return nodes, options.tasks_per_node or job_each
    if options.tasks < nodes:
        if options.nodes:
            raise Wrong("%d tasks are too few for %d nodes" % (options.tasks, nodes))
        nodes = options.tasks
    if options.tasks % nodes:
        raise Wrong("%d tasks cannot be divided evenly over %d nodes" % (options.tasks, nodes))
    return nodes, options.tasks // nodes


def _nodes(environ: Mapping[str, str]) -> int:
    return max(1, int(environ.get("SLURM_JOB_NUM_NODES", "1")))


def _exported(what: str, environ: Mapping[str, str]) -> Dict[str, str]:
    """`--export=ALL,A=1`, `A,B=2` (and all that is Slurm's), `NONE`."""
    words = [word for word in what.split(",") if word]
    every = not words or any(word.upper() == "ALL" for word in words)
    kept = {
        name: value
        for name, value in environ.items()
        if every or name.startswith(("SLURM", "DLQ_", "PET_", "MASTER_", "CUDA_")) or name in words
    }
    kept.setdefault("PATH", environ.get("PATH", os.defpath))
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            kept[name] = value
    return kept


def _task(
    environ: Mapping[str, str], options: SrunOptions, node: int, each: int, local: int
) -> Dict[str, str]:
    task = {
        **environ,
        "SLURM_PROCID": str(node * each + local),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(node),
    }
    if options.gpus_per_task:
        devices = [each for each in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        mine = devices[local * options.gpus_per_task : (local + 1) * options.gpus_per_task]
        task["CUDA_VISIBLE_DEVICES"] = task["SLURM_STEP_GPUS"] = ",".join(mine)
    return task


class RunningStep:
    """The tasks of a step on this node. A failing task takes the others along, unless an option
    forbids it.
    """

    def __init__(self, options: SrunOptions, step: SrunStep) -> None:
        """Start them all. OSError when the command or a file for its output cannot be opened."""
        self._options = options
        self._awake = catch((*FORWARDED, signal.SIGCHLD))
        self._left: List["subprocess.Popen[bytes]"] = []
        self._labels: Dict[int, str] = {}
        self._code = 0
        self._end_s: Optional[float] = None
        try:
            for task in step.tasks:
                self._left.append(self._start(task))
        except OSError:
            self._send(signal.SIGKILL)
            raise

    def wait(self) -> int:
        """Wait until the last task has ended."""
        while True:
            self._reap()
            if not self._left:
                self._drain()
                return self._code
            left_s = None if self._end_s is None else self._end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self._send(signal.SIGKILL)
                left_s = None
            ready, _, _ = select.select([self._awake, *self._labels], [], [], left_s)
            for descriptor in ready:
                if descriptor in self._labels:
                    self._label(descriptor)
                    continue
                for number in os.read(self._awake, 512):
                    if number != signal.SIGCHLD:
                        self._send(number)

    def _start(self, task: Dict[str, str]) -> "subprocess.Popen[bytes]":
        options = self._options
        with contextlib.ExitStack() as closing:
            output = self._open(options.output, task, closing)
            error = self._open(options.error, task, closing) if options.error else output
            if options.label and not options.output:
                output = error = self._labelled(task["SLURM_PROCID"], closing)
            return subprocess.Popen(
                options.command,
                env=task,
                cwd=options.chdir or None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=error,
            )

    def _open(self, pattern: str, task: Mapping[str, str], closing: contextlib.ExitStack) -> _File:
        """Appended to, unless `--open-mode=truncate`: another attempt must not wipe out the
        first.
        """
        if not pattern or pattern.lower() == "none":
            return None if not pattern else subprocess.DEVNULL
        path = filled(os.path.join(self._options.chdir, pattern), task)
        return closing.enter_context(open(path, "wb" if self._options.truncate else "ab"))

    def _labelled(self, label: str, closing: contextlib.ExitStack) -> int:
        """The descriptor for a task whose lines shall carry its number."""
        reading, writing = os.pipe()
        closing.callback(os.close, writing)
        self._labels[reading] = label
        return writing

    def _label(self, descriptor: int) -> None:
        """Whole lines only, if they are short: ranks must not mix."""
        data = os.read(descriptor, 65536)
        if not data:
            os.close(descriptor)
            del self._labels[descriptor]
            return
        label = ("%s: " % self._labels[descriptor]).encode()
        lines = data.splitlines(keepends=True)
        sys.stdout.buffer.write(b"".join(label + line for line in lines))
        sys.stdout.buffer.flush()

    def _drain(self) -> None:
        """Print the rest of the tasks' output. Something that they left behind may hold their pipes
        open.
        """
        while self._labels:
            ready, _, _ = select.select(list(self._labels), [], [], 0)
            if not ready:
                return
            for descriptor in ready:
                self._label(descriptor)

    def _reap(self) -> None:
        for task in list(self._left):
            code = task.poll()
            if code is None:
                continue
            self._left.remove(task)
            if self._end_s is None:  # a task that we end ourselves has not failed
                self._code = max(self._code, code if code >= 0 else _INTERRUPTED - code)
            if code and self._options.kill_on_bad_exit and self._left and self._end_s is None:
                self._end_s = time.monotonic() + KILL_WAIT_S
                self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for task in self._left:
            task.send_signal(number)


_SIGN = re.compile(r"%(\d*)([%AaJjNnstux])")


def filled(pattern: str, environ: Mapping[str, str]) -> str:
    """The pattern with the values of a task; a number pads, as in `%4t`. `%%` is a percent."""
    job = environ.get("SLURM_JOB_ID", "0")
    step = environ.get("SLURM_STEP_ID", "0")
    words = {
        "%": "%",
        "A": environ.get("SLURM_ARRAY_JOB_ID", job),
        "a": environ.get("SLURM_ARRAY_TASK_ID", "0"),
        "J": "%s.%s" % (job, step),
        "j": job,
        "N": environ.get("SLURMD_NODENAME", ""),
        "n": environ.get("SLURM_NODEID", "0"),
        "s": step,
        "t": environ.get("SLURM_PROCID", "0"),
        "u": environ.get("SLURM_JOB_USER", ""),
        "x": environ.get("SLURM_JOB_NAME", ""),
    }

    def word(found: "re.Match[str]") -> str:
        text = words[found[2]]
        return text.rjust(min(int(found[1] or 0), 10), "0") if text.isdigit() else text

    return _SIGN.sub(word, pattern)
