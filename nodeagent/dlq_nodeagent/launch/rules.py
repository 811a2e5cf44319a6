"""The settings of this node for jobs: sections of its configuration, and rules of launches."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dlq_common.daemon.config import Bytes, Seconds
from dlq_nodeagent.model.launch import RunAs


@dataclass(frozen=True, slots=True)
class AgentJobsConfig:
    """Rights of jobs on this node, and their stops."""

    runtime: Literal["process", "podman", "fake"] = (
        "process"  # podman: processes too, without image
    )
    run_as: Literal["auto", "self", "submitter"] = "auto"  # auto = submitter when root, else self
    allow_root: bool = False  # development only: jobs run as root, the master must be on loopback
    roots: tuple[
        str, ...
    ] = ()  # workdirs and checkpoints must be below one of these; () = anywhere
    # Of the directories made for checkpoints. "0750" lets the group of the job's user (or that of a
    # set-group-id root) read.
    checkpoint_mode: Literal["0700", "0750", "0755"] = "0700"
    startup_grace: Seconds = Seconds(20.0)  # a job without a beat is not asked to leave before
    leave: Seconds = Seconds(10.0)  # how long a job may stay after the save it was asked for
    term: Seconds = Seconds(10.0)  # SIGTERM comes this long before SIGKILL
    command_kept: Seconds = Seconds(45.0)  # a command of dlq exec waits so long for a lost client
    pids_max: int = 4096  # processes and threads of one rank
    # Jobs can open their own GPUs only. auto: where the kernel lets us, else the log says why not.
    own_gpus: Literal["auto", "required", "off"] = "auto"
    profile: bool = True  # record the traffic of jobs that the master wants profiled
    keep: Seconds = Seconds(7 * 86_400.0)  # logs and facts of ended ranks
    keep_count: int = 500  # the most ended ranks to keep


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """The kept part of each rank's output."""

    head: Bytes = Bytes(1024**2)  # the beginning
    ring: Bytes = Bytes(8 * 1024**2)  # the end
    rate: Bytes = Bytes(64 * 1024**2)  # per second; 0 = no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRules:
    """Limits of this node for launches. Empty roots allow every directory."""

    jobs: AgentJobsConfig = field(default_factory=AgentJobsConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    run_as: RunAs
    scripts: Path
    """Directory of the agent's own for the scripts of jobs, mode 0711."""
    stand_ins: Path | None = None
    """State directory with the stand-ins for other schedulers' programs; None: there are none."""
