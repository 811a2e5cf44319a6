"""The options of `srun`: with a meaning here, without harm here, and all others."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple


class Wrong(Exception):
    """An option that cannot be done here; the text says why."""


class SrunOptions(NamedTuple):
    """The parsed options of `srun`."""

    command: List[str]
    tasks: Optional[int]  # of all nodes together
    nodes: Optional[int]
    tasks_per_node: Optional[int]
    gpus_per_task: Optional[int]
    nodelist: str
    label: bool
    kill_on_bad_exit: bool
    output: str
    error: str
    truncate: bool
    chdir: str
    export: str


_SHORT = {
    "-n": "--ntasks", "-N": "--nodes", "-l": "--label", "-u": "--unbuffered", "-D": "--chdir",
    "-o": "--output", "-e": "--error", "-w": "--nodelist", "-K": "--kill-on-bad-exit",
    "-c": "--cpus-per-task", "-m": "--distribution", "-J": "--job-name", "-t": "--time",
    "-v": "--verbose", "-Q": "--quiet", "-O": "--overcommit", "-s": "--oversubscribe",
    "-i": "--input", "-r": "--relative", "-x": "--exclude", "-p": "--partition",
    "-A": "--account", "-G": "--gpus", "-W": "--wait", "-k": "--no-kill", "-C": "--constraint",
    "-q": "--qos", "-E": "--preserve-env",
}  # fmt: skip
_SWITCHES = frozenset(
    {
        "--label", "--unbuffered", "--verbose", "--quiet", "--overcommit", "--exact", "--overlap",
        "--oversubscribe", "--exclusive", "--pty", "--no-kill", "--multi-prog", "--kill-on-bad-exit",  # noqa: E501
        "--preserve-env", "--contiguous", "--spread-job", "--async",
    }
)  # fmt: skip
_HARMLESS = frozenset(
    {
        "--unbuffered", "--verbose", "--quiet", "--overcommit", "--exact", "--overlap",
        "--oversubscribe", "--exclusive", "--job-name", "--time", "--cpus-per-task", "--cpu-bind",
        "--cpu_bind", "--mem-bind", "--gpu-bind", "--distribution", "--hint", "--mem",
        "--mem-per-cpu", "--mem-per-gpu", "--gres", "--gpus", "--gpus-per-node", "--threads-per-core",  # noqa: E501
        "--wait", "--no-kill", "--partition", "--account", "--constraint", "--qos",
        "--accel-bind", "--comment", "--preserve-env", "--contiguous", "--spread-job", "--jobid",
        "--cpus-per-gpu", "--network", "--wckey", "--slurmd-debug", "--tres-bind", "--gres-flags",
    }
)  # fmt: skip
_DONE = frozenset(
    {
        "--ntasks", "--nodes", "--ntasks-per-node", "--gpus-per-task", "--nodelist", "--label",
        "--kill-on-bad-exit", "--output", "--error", "--open-mode", "--chdir", "--export", "--mpi",
    }
)  # fmt: skip
_REASONS = {
    "--pty": "a job here has no terminal",
    "--multi-prog": "all tasks of a step run the same program here",
    "--input": "tasks read from /dev/null here",
    "--container-image": "name the image when you submit: dlq submit --image",
    "--relative": "a step begins with the first node here",
    "--exclude": "a step begins with the first node here",
}


def read(arguments: List[str]) -> SrunOptions:
    """The options and the command behind them. Wrong names the option that this `srun` cannot
    do.
    """
    given, command = _split(arguments)
    for name in given:
        if name not in _DONE and name not in _HARMLESS:
            raise Wrong("%s: %s" % (name, _REASONS.get(name, "not supported by dlq's srun")))
    if not command:
        raise Wrong("there is no command to run")
    if given.get("--mpi", "none") != "none":
        raise Wrong("--mpi=%s: dlq's srun speaks no PMI; use torchrun" % given["--mpi"])
    kill = given.get("--kill-on-bad-exit", "1") != "0"
    return SrunOptions(
        command=command,
        tasks=_count(given, "--ntasks"),
        nodes=_count(given, "--nodes"),
        tasks_per_node=_count(given, "--ntasks-per-node"),
        gpus_per_task=_count(given, "--gpus-per-task"),
        nodelist=given.get("--nodelist", ""),
        label="--label" in given,
        kill_on_bad_exit=kill,
        output=given.get("--output", ""),
        error=given.get("--error", ""),
        truncate=given.get("--open-mode", "a")[:1] == "t",
        chdir=given.get("--chdir", ""),
        export=given.get("--export", ""),
    )


def _split(arguments: List[str]) -> Tuple[Dict[str, str], List[str]]:
    given: Dict[str, str] = {}
    left = list(arguments)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        name, value = _named(word)
        if value is None and name not in _SWITCHES:
            if not left:
                raise Wrong("%s needs a value" % name)
            value = left.pop(0)
        given[name] = value or ""
    return given, left


def _named(word: str) -> Tuple[str, Optional[str]]:
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    name = _SHORT.get(word[:2], "")
    if not name:
        raise Wrong("%s: no such option" % word[:2])
    if name in _SWITCHES:  # `-vv`, `-lu`; and `-K0`
        return name, word[2:].lstrip("=") if name == "--kill-on-bad-exit" and word[2:] else ""
    return name, word[2:].lstrip("=") or None


def _count(given: Dict[str, str], name: str) -> Optional[int]:
    text = given.get(name)
    if text is None:
        return None
    text = text.partition("-")[0] if name == "--nodes" else text.rpartition(":")[2]
    if not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise Wrong("%s needs a number, not %r" % (name, given[name][:40]))
    return int(text)
