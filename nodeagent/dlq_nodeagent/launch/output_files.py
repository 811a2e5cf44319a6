"""The files into which a rank's output is copied: their names, and the program that writes them.

`dlq-output` (shim/output) is the rank's main process and runs as the job. So a restart or a silence
of agent and master changes nothing, and the kernel checks the paths with the user's own rights.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from dlq_common.job_fields.table.output_files import OPEN_MODE, STDERR, STDOUT
from dlq_common.text.output_patterns import (
    NO_ARRAY_TASK,
    OutputNames,
    expand_output_pattern,
    is_of_each_rank,
)
from dlq_nodeagent.launch.programs import program_at, program_mount
from dlq_nodeagent.launch.slurm import COMPAT
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.shim.binary import OUTPUT_NAME


def output_files(launch: Launch, cwd: str) -> tuple[str, ...]:
    """The absolute paths for stdout and stderr; one: they share a file; empty: none, or only
    /dev/null.
    """
    patterns = [STDOUT.of(launch.fields), STDERR.of(launch.fields)]
    if patterns[0] is None and patterns[1] is not None:
        patterns[0] = os.devnull  # stdout stays in `dlq logs` alone
    names = _names(launch)
    files = tuple(
        os.path.join(cwd, expand_output_pattern(pattern, names))
        for pattern in patterns
        if pattern is not None and (launch.key.node_rank == 0 or is_of_each_rank(pattern))
    )
    return files if set(files) != {os.devnull} else ()


def with_output_files(
    launch: Launch, words: tuple[str, ...], cwd: str, state_dir: Path | None
) -> tuple[str, ...]:
    """The command of a rank, with `dlq-output` before it if it has output files."""
    files = output_files(launch, cwd)
    if not files:
        return words
    return (program_at(OUTPUT_NAME, state_dir), _open_mode(launch), *files, "--", *words)


def output_mount(launch: Launch, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container with output files must see."""
    if not output_files(launch, "/"):
        return ()
    return program_mount(OUTPUT_NAME, state_dir)


def _open_mode(launch: Launch) -> str:
    """The requested mode. By default the first attempt truncates the file, and later ones append.

    A directory with the job's number in its name cannot exist before the submission, so it is made.
    A file that cannot be opened ends a job for Slurm by the signal that Slurm shows then.
    """
    patterns = (STDOUT.of(launch.fields), STDERR.of(launch.fields))
    made = any("%" in os.path.dirname(pattern) for pattern in patterns if pattern is not None)
    mode = OPEN_MODE.of(launch.fields) or ("truncate" if launch.key.attempt == 1 else "append")
    # A container's first process would end with 128 more than the signal.
    signals = launch.compat == COMPAT and launch.container is None
    return mode + (",mkdir" if made else "") + (",slurm" if signals else "")


def _names(launch: Launch) -> OutputNames:
    told: Mapping[str, str] = launch.environment
    rank, job = launch.key.node_rank, int(launch.key.job_id)
    return OutputNames(
        job_id=job,
        array_id=int(told.get("DLQ_ARRAY_JOB_ID", job)),
        array_index=int(told.get("DLQ_ARRAY_TASK_ID", NO_ARRAY_TASK)),
        job_name=launch.job_name,
        user=launch.user,
        host=launch.node_ids[rank] if rank < len(launch.node_ids) else "",
        node_rank=rank,
        task=rank * (launch.tasks_per_node or 1),
    )
