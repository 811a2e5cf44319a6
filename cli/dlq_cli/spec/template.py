"""A spec to start from, with a comment on every key: TOML, YAML, or a script with #DLQ lines.

It has every key of the spec (fields.py), and each is valid when its `#` goes, with the one that its
words name.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from dlq_cli.spec.fields import READERS, SECTIONS
from dlq_cli.spec.flags import FLAGS

FORMS = ("toml", "yaml", "script")
WIDTH = 96


class Entry(NamedTuple):
    """One key as the template shows it: `live` ones count, the others wait behind a `#`."""

    value: str  # as TOML
    words: str
    live: bool = False


_ENTRIES: dict[str, Entry] = {
    "name": Entry('"mnist"', "For people. Default: the program's name.", live=True),
    "command": Entry(
        '"python train.py --lr 0.1"', "Split into words, run by no shell. Or `run`.", live=True
    ),
    "run": Entry(
        '"python prepare.py && python train.py"',
        "Instead of command: lines for /bin/sh, or for its #! line.",
    ),
    "queue": Entry('"default"', "Default: the cluster's."),
    "team": Entry('"vision"', "Whose GPUs it takes. Default: your default team."),
    "nodes": Entry("2", "The command runs once on each. Default: any that hold the GPUs."),
    "time_limit": Entry(
        '"12:00:00"', "90 (minutes), 12:00:00, 1-00:00:00, 90m; 0 for none.", live=True
    ),
    "estimate": Entry('"10h"', "How long you expect it to run in all. Deadlines are promised by "
                               "it."),
    "deadline": Entry('"2d"', "From its submission on, or 2026-12-01T08:00. Or `soft_deadline`."),
    "soft_deadline": Entry(
        '"2d:100,+10%:80,+50%:20"', "Instead of deadline: several, and what an end by each is "
                                    "worth."
    ),
    "on_miss": Entry('"cancel"', "When `deadline` cannot be kept any more. Default: continue."),
    "due": Entry('"8h"', "When it is to be done, with `weight`; machines may be rented for it."),
    "weight": Entry("5.0", "What each hour after `due` costs, as the prices of pools do."),
    "steps": Entry("100000", "Training steps in all, as the job's beats count them."),
    "workdir": Entry('"/shared/mnist"', "On every node. Default: where you submit."),
    "hold": Entry("true", "Starts only after `dlq release`."),
    "array": Entry('"0-99%4"', "One job for each index, at most 4 at a time: DLQ_ARRAY_TASK_ID."),
    "profile": Entry("true", "Record its traffic; false: never. Default: its first distributed "
                             "start."),
    "depends_on": Entry('"afterok:12,afterany:14"', "Not before these; `?` for any of them."),
    "cancel_if_never": Entry("true", "Cancel it when that can never come true. Default: hold it."),
    "begin": Entry('"2026-12-01T08:00"', "Not before this; in your zone. Or 18:00, now+2hours."),
    "nice": Entry("10", "Behind all other jobs of its queue: 1 to 100."),
    "disconnect_hold": Entry('"2h"', "How long it runs on while the master is silent."),
    "runtime": Entry('"process"', "What starts it. Default: the cluster's."),
    "export": Entry('"NONE"', "ALL of your shell's variables, NONE, or A,B=2. Default: NONE."),
    "env": Entry('{ DATA = "/shared/data" }', "Its variables; [\"HOME\"] takes one from your "
                                              "shell."),
    "labels": Entry('{ team = "vision" }', "For people and filters."),
    "image": Entry('"registry.lab/team/train:2"', "Run it in a container, by tag or "
                                                  "@sha256:digest."),
    "mounts": Entry('["/shared/data:/data:ro"]', "What of the nodes the container sees; with "
                                                 "image."),
    "network": Entry('"host"', "Of the container: host or none; with image."),
    "image_secret": Entry('"registry"', "The nodes' secret with the registry's credentials; with "
                                        "image."),
    "secrets": Entry('["wandb"]', "The nodes' secrets; with image, in /run/secrets."),
    "resources.shm_size": Entry('"64GiB"', "/dev/shm, with image. Default: half its memory."),
    "resources.gpus": Entry('"h100:8"', "Of each node; `8` takes any type. Or gpus_total."),
    "resources.gpus_total": Entry("8", "Of the whole job, on any nodes.", live=True),
    "resources.gpu_type": Entry(
        '["h100", "a100"]', "Any one of these, as `dlq nodes` shows it, or how that begins."
    ),
    "resources.constraint": Entry('{ rack = "r1" }', "Only nodes with these labels."),
    "resources.nodelist": Entry('"gpu[01-04]"', "Only these nodes."),
    "resources.exclude": Entry('"gpu07"', "Not these nodes."),
    "resources.cpus": Entry("32", "Limit on each node, in cores."),
    "resources.memory": Entry('"400GiB"', "Limit on each node. GB is 10^9, GiB (or G) 2^30."),
    "resources.gpu_memory": Entry('"80GB"', "Of each GPU, at least; 10^9."),
    "resources.mixed_gpus": Entry("true", "On GPUs of several types at once, those that are left."),
    "resources.halve_batch": Entry("true", "GPUs with half of gpu_memory too, by half the batch."),
    "elastic.gpus": Entry('"2:8"', "On any number of GPUs between, and on others while it runs."),
    "elastic.sizes": Entry("[2, 4, 8]", "Instead: on these numbers of GPUs."),
    "elastic.resize": Entry('"restart"', "How it gets others: it saves and starts again, or live; "
                                         "with gpus."),
    "compat": Entry('"slurm"', "Slurm's variables, and stand-ins for srun, scontrol and the like."),
    "tasks_per_node": Entry("4", "Of srun, with compat. Default: one for each GPU."),
    "launch": Entry('"per-gpu"', "One process for each GPU. Default: per-node, for torchrun."),
    "roles.workers": Entry("8", "The command as so many workers, told by TF_CONFIG and DMLC_*."),
    "roles.ps": Entry("2", "And as parameter servers, without GPUs; with workers."),
    "checkpoint.preset": Entry(
        '"hf"', "A framework's habits: sigterm, torchrun, hf, lightning, submitit; with dir."
    ),
    "preempt.signal": Entry(
        '"USR1@120"', "Asks the main process to save: TERM, USR1, USR2, INT; @S seconds ahead."
    ),
    "preempt.signal_to": Entry(
        '"ranks"', "Signals are for what torchrun has started, not for the main process."
    ),
    "preempt.grace": Entry('"auto"', "Time to save; auto learns it from the saves it sees."),
    "preempt.exit_zero_completes": Entry("true", "Exit code 0 while asked to save means finished."),
    "checkpoint.dir": Entry('"/shared/ckpt/mnist"', "Default: the cluster's place, by job."),
    "checkpoint.marker": Entry('"step-*/done"', "The file that makes a checkpoint whole; with dir."),  # noqa: E501
    "checkpoint.save_signal": Entry('"USR2"', "On it the script saves and goes on: `dlq "
                                              "checkpoint`."),
    "checkpoint.settle": Entry('"10s"', "... once it has not changed for this long."),
    "retry.max_restarts": Entry("3", "After failures of its own. Lost nodes do not count."),
    "retry.exit_codes": Entry("[99]", "`Saved, start me again`, besides 99."),
}  # fmt: skip

_HEADS = {
    "toml": "A job for dlq. `dlq spec check FILE` reads it as `dlq submit FILE` would.",
    "yaml": "A job for dlq. `dlq spec check FILE` reads it as `dlq submit FILE` would.",
    "script": "A job for dlq: `dlq submit FILE`. Lines below count until the first command.",
}


def template(form: str) -> str:
    """The text of a template in one of FORMS; it is valid as it stands."""
    return "\n".join({"toml": _toml, "yaml": _yaml, "script": _script}[form]()) + "\n"


def entry(key: str) -> Entry:
    """What the template says of a key; KeyError for one that it forgets."""
    return _ENTRIES[key]


def _toml() -> Iterator[str]:
    yield f"# {_HEADS['toml']}"
    for section in ("", *SECTIONS):
        keys = _keys(section)
        alive = any(entry(key).live for key in keys)
        if section:
            yield from ("", f"{'' if alive else '# '}[{section}]")
        for key in keys:
            found = entry(key)
            line = f"{'' if found.live else '# '}{key.rpartition('.')[2]} = {found.value}"
            yield _commented(line, found.words)


def _yaml() -> Iterator[str]:
    yield f"# {_HEADS['yaml']}"
    for section in ("", *SECTIONS):
        keys = _keys(section)
        alive = any(entry(key).live for key in keys)
        if section:
            yield from ("", f"{'' if alive else '# '}{section}:")
        for key in keys:
            found = entry(key)
            indent = "  " if section else ""
            value = found.value.replace("{ ", "{").replace(" }", "}").replace(" = ", ": ")
            dash = "" if found.live else "# "
            yield _commented(f"{dash}{indent}{key.rpartition('.')[2]}: {value}", found.words)


def _script() -> Iterator[str]:
    yield from ("#!/bin/bash", f"# {_HEADS['script']}", "#DLQ --job-name=mnist", "#DLQ --gpus=8")
    yield from ("#DLQ --time=12:00:00", "#", "# More, each on a #DLQ line of its own:")
    for flag in FLAGS:
        name = next(name for name in flag.names if name.startswith("--"))
        value = f"={flag.metavar}" if flag.metavar else ""
        yield from textwrap.wrap(
            f"{name}{value}  {flag.help}",
            WIDTH,
            initial_indent="#   ",
            subsequent_indent="#       ",
        )
    yield from ("", "set -e", "python train.py --lr 0.1")


def _keys(section: str) -> list[str]:
    return [key for key in READERS if key.rpartition(".")[0] == section]


def _commented(line: str, words: str) -> str:
    return f"{line:<48} # {words}" if words else line
