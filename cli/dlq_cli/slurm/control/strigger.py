"""`strigger`: there are no triggers, so `--get` shows none and `--set` names what tells instead.

Slurm runs the program of a trigger on the controller's host. dlq runs nobody's program there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.words import Grammar, only_here, read

_OF_SITES = "operators watch the master by its metrics: deploy/monitoring has alerts"
_OF_NODES = "`dlq events -w --node NODE` tells operators; deploy/monitoring has alerts"
_OF_JOBS: Mapping[str, str] = {
    "fini": "`dlq notify add webhook URL --on ended` calls a program; `dlq wait JOB` waits here",
    "time": "`sbatch --signal=B:USR1@300` tells the job; `dlq notify add ... --on time_limit` you",
}
_EVENTS: Mapping[str, str] = {
    **_OF_JOBS,
    **dict.fromkeys(("down", "drained", "fail", "idle", "up", "front_end"), _OF_NODES),
    **dict.fromkeys(
        (
            "primary_slurmctld_failure", "primary_slurmctld_resumed_operation",
            "primary_slurmctld_resumed_control", "primary_slurmctld_acct_buffer_full",
            "backup_slurmctld_failure", "backup_slurmctld_resumed_operation",
            "backup_slurmctld_assumed_control", "primary_slurmdbd_failure",
            "primary_slurmdbd_resumed_operation", "primary_database_failure",
            "primary_database_resumed_operation", "reconfig", "burst_buffer",
        ),
        _OF_SITES,
    ),
}  # fmt: skip
GRAMMAR = Grammar(
    "strigger",
    {
        "a": "primary_slurmctld_failure", "A": "primary_slurmctld_resumed_operation",
        "b": "primary_slurmctld_resumed_control", "B": "backup_slurmctld_failure",
        "c": "backup_slurmctld_resumed_operation", "C": "backup_slurmctld_assumed_control",
        "d": "down", "D": "drained", "e": "primary_slurmctld_acct_buffer_full", "F": "fail",
        "f": "fini", "g": "primary_slurmdbd_failure", "G": "primary_slurmdbd_resumed_operation",
        "h": "primary_database_failure", "H": "primary_database_resumed_operation", "i": "id",
        "I": "idle", "j": "jobid", "M": "clusters", "n": "node", "N": "noheader", "o": "offset",
        "p": "program", "Q": "quiet", "r": "reconfig", "t": "time", "u": "up", "v": "verbose",
    },
    frozenset(
        {"clusters", "cluster", "flags", "id", "jobid", "node", "offset", "program", "user"}
    ),
    frozenset({"set", "get", "clear", "noheader", "quiet", "verbose", "help", "usage", *_EVENTS}),
    takes_words=True,
    optional=frozenset({"node"}),
    same={"cluster": "clusters"},
)  # fmt: skip
_USAGE = "Usage: strigger [--set | --get | --clear | --version] [-aAbBcCdDefFgGhHiIjnNopQrtuv]"
_NO_EVENT = (
    "strigger: error: You must specify a trigger (--down, --up, --reconfig, --time, --fini, "
    "--burst_buffer, ...)"
)


def main(app: App, words: Sequence[str]) -> None:
    """Nothing for `--get`; SlurmSays names another way for `--set`, and a missing word."""
    given = read(GRAMMAR, words)
    said = given.options.keys()
    if {"usage", "help"} & said:
        click.echo(_USAGE)
        return
    if len({"set", "get", "clear"} & said) != 1:
        raise SlurmSays(
            "strigger: error: You must use exactly one of the following options: --set, --get or "
            "--clear"
        )
    only_here(app, given, GRAMMAR)
    if "set" in said:
        raise SlurmSays(*_refusal(given.options))
    if "clear" in said:
        if not {"id", "jobid", "user"} & said:
            raise SlurmSays("strigger: error: You must specify a --id, --jobid, or --user to clear")
        raise SlurmSays("slurm_clear_trigger: No such process")


def _refusal(options: Mapping[str, str]) -> Sequence[str]:
    """Slurm's word for people who may set none, and the way of dlq."""
    job = options.get("jobid", "0")
    if not job.isdecimal():
        return (f"strigger: error: Invalid jobid {job[:40]}",)
    event = next((name for name in _EVENTS if name in options), "")
    if not event:
        return (_NO_EVENT,)
    if not options.get("program"):
        return ("strigger: error: You must specify a --program value",)
    if event in _OF_JOBS and "jobid" not in options:
        return ("strigger: error: You must specify a --jobid value",)
    return ("slurm_set_trigger: Access/permission denied", f"  {_EVENTS[event]}")
