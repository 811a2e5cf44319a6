"""The settings that let a framework's script be paused and resumed without a change, under one
name.

A preset is the lowest layer of a spec: every key that somebody writes wins over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_cli.spec.values.given import Given, Layer, ReadLayer, wrong
from dlq_common.job_fields.reading.words import SignalAhead

KEY = "checkpoint.preset"


class FrameworkPreset(NamedTuple):
    """One framework's habits."""

    signal: str
    reaches: str  # the receiver of the signal, as a fact for people
    saves: str  # its reaction to the signal
    proof: str  # the form of a committed checkpoint
    resumes: str  # how the next attempt finds it
    marker: str = ""  # below checkpoint.dir; without a directory there is nothing to look for
    array_marker: str = ""  # the same for a task of an array
    settle_s: float = 0.0
    compat: str = ""
    directory: str = ""  # the required checkpoint.dir; empty: it may be missing
    to_ranks: bool = False  # of a launcher, not to the launcher


PRESETS: Mapping[str, FrameworkPreset] = {
    "sigterm": FrameworkPreset(
        signal="TERM",
        reaches="the main process",
        saves="its own handler saves and leaves",
        proof="a directory with dlq_train's COMMITTED, or the name in checkpoint.marker",
        resumes="DLQ_RESUME_FROM, or the newest file of its own directory",
    ),
    "torchrun": FrameworkPreset(
        signal="TERM",
        reaches="the main process of each rank that torchrun has started, not torchrun",
        saves="the ranks save and leave, and torchrun with them: with 1 if one of them failed",
        proof="a directory with dlq_train's COMMITTED, or the name in checkpoint.marker",
        resumes="DLQ_RESUME_FROM, or the newest file of its own directory",
        to_ranks=True,
    ),
    "hf": FrameworkPreset(
        signal="TERM",
        reaches="the main process; under torchrun that of each rank",
        saves="Trainer with enable_jit_checkpoint (several ranks: a callback) saves and leaves",
        proof="trainer_state.json in a checkpoint-N directory, which Trainer writes last",
        resumes="trainer.train(resume_from_checkpoint=True), or DLQ_RESUME_FROM",
        marker="checkpoint-*/trainer_state.json",
        settle_s=1.0,
        directory="the trainer's output_dir",
        to_ranks=True,
    ),
    "lightning": FrameworkPreset(
        signal="USR1",
        reaches="all tasks that srun has started, else the main process",
        saves="Trainer saves hpc_ckpt_N.ckpt in its default_root_dir, and calls scontrol requeue",
        proof="that file, or the requeue",
        resumes="Trainer loads the newest hpc_ckpt by itself",
        marker="**/hpc_ckpt_*.ckpt",
        settle_s=1.0,
        compat="slurm",
    ),
    "submitit": FrameworkPreset(
        signal="USR2",
        reaches="all tasks that srun has started, else the main process",
        saves="task 0 calls the function's checkpoint(), stores its result, and requeues",
        proof="the job's pickle written anew, or the requeue",
        resumes="submitit loads that pickle by itself",
        marker="**/%j_submitted.pkl",
        array_marker="**/%A_%a_submitted.pkl",
        compat="slurm",
    ),
}


def asks_for_slurm(merged: ReadLayer) -> bool:
    """Whether a job is to find Slurm's variables and commands, by itself or by its preset."""
    said = merged.get("compat")
    if said is not None:
        return said.value == "slurm"
    given = merged.get(KEY)
    preset = PRESETS.get(str(given.value)) if given else None
    return preset is not None and preset.compat == "slurm"


def with_preset(merged: ReadLayer) -> ReadLayer:
    """The layer, and below it the values of its preset. InvalidRequest when that needs a
    directory.
    """
    given = merged.get(KEY)
    preset = PRESETS.get(str(given.value)) if given else None
    if given is None or preset is None:
        return merged
    if preset.directory and "checkpoint.dir" not in merged:
        raise wrong(
            given.origin,
            f"the preset {given.value} looks for checkpoints in a directory: name it with "
            f"checkpoint.dir ({preset.directory})",
        )
    origin = f"preset {given.value} ({given.origin})"
    below: Layer = {"preempt.signal": Given(SignalAhead(preset.signal, 0), origin)}
    if preset.to_ranks:
        below["preempt.signal_to"] = Given("ranks", origin)
    marker = preset.array_marker if "array" in merged else preset.marker
    if (marker or preset.marker) and "checkpoint.dir" in merged:
        below["checkpoint.marker"] = Given(marker or preset.marker, origin)
        below["checkpoint.settle"] = Given(preset.settle_s, origin)
    if preset.compat:
        below["compat"] = Given(preset.compat, origin)
    return {**below, **merged}
