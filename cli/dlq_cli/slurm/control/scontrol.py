"""`scontrol`: one verb and its arguments, answered in Slurm's words.

Verbs of a running Slurm's inside (reconfigure, takeover, ...) are refused by name. A change is one
call for each job. A call that fails takes no earlier change back, as in Slurm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays, unknown_option
from dlq_cli.slurm.control.changing import VERBS, change_jobs, update
from dlq_cli.slurm.control.config import show_config
from dlq_cli.slurm.control.helping import HELP, REFUSED
from dlq_cli.slurm.control.script import write
from dlq_cli.slurm.control.showing import (
    ShowOptions,
    show_hosts,
    show_jobs,
    show_nodes,
    show_partitions,
    show_reservations,
    show_steps,
)
from dlq_cli.slurm.control.waiting import completing, listpids, notify, ping, wait_job
from dlq_cli.slurm.words import CLUSTERS, clusters_of_environment, no_cluster
from dlq_compat.version import VERSION

_FLAGS = {
    "-o": "oneliner", "--oneliner": "oneliner", "-d": "details", "--details": "details",
    "-dd": "details", "-Q": "quiet", "--quiet": "quiet", "-a": "all", "--all": "all",
    "-v": "verbose", "--verbose": "verbose", "--hide": "hide", "--local": "local",
    "--federation": "federation", "--sibling": "sibling", "-F": "future", "--future": "future",
    "-h": "help", "--help": "help", "--json": "json", "--yaml": "yaml",
}  # fmt: skip
_VALUED = {
    "-M": "clusters",
    "--clusters": "clusters",
    "--cluster": "clusters",
    "-u": "uid",
    "--uid": "uid",
}


class _Line(NamedTuple):
    """The words without options, and what the options say."""

    words: list[str]
    asked: ShowOptions


def main(app: App, given: Sequence[str]) -> None:
    """One verb and its arguments."""
    line = _read(app, given)
    for name in clusters_of_environment():
        _check_cluster(app, name, CLUSTERS)
    if not line.words:
        click.echo(HELP)
        return
    verb, rest = line.words[0].lower(), line.words[1:]
    if verb in _ALONE:
        _ALONE[verb](app, rest, line.asked)
    elif verb in VERBS:
        if not rest:
            raise SlurmSays(f"too few arguments for keyword:{verb}")
        change_jobs(app, verb, rest)
    elif verb in REFUSED:
        if verb == "top" and not rest:
            raise SlurmSays(f"too few arguments for keyword:{verb}")
        raise SlurmSays(f"scontrol: error: {verb}: {REFUSED[verb]}")
    else:
        raise SlurmSays(f"invalid keyword: {line.words[0][:60]}")


def _read(app: App, given: Sequence[str]) -> _Line:
    left, words, said = list(given), [], set()
    while left:
        word = left.pop(0)
        head, equals, value = word.partition("=")
        if word in _FLAGS:
            said.add(_FLAGS[word])
        elif head in _VALUED:
            text = value if equals else left.pop(0) if left else ""
            if _VALUED[head] == "clusters":
                _check_cluster(app, text)
        elif word.startswith("-") and word != "-":
            raise unknown_option("scontrol", word)
        else:
            words.append(word)
    if "help" in said:
        return _Line(["help"], ShowOptions())
    flags = dict.fromkeys(said & set(ShowOptions._fields), True)
    return _Line(words, ShowOptions(**flags))


def _check_cluster(app: App, name: str, said_by: str = "--cluster") -> None:
    own = app.connection().identity.cluster
    if name.lower() not in ("all", own.lower()):
        raise no_cluster("scontrol", name, said_by)


def _show(app: App, rest: Sequence[str], asked: ShowOptions) -> None:
    if not rest:
        raise SlurmSays("too few arguments for keyword:show")
    word, _, name = rest[0].partition("=")  # `show jobid=3`
    kind, named = word.lower(), [*([name] if name else []), *rest[1:]]
    entity = _entity(kind)
    if entity is None:
        raise SlurmSays(f"invalid entity:{rest[0][:60]} for keyword:show ")
    if len(named) > 1 and entity not in ("hostnames", "hostlist", "hostlistsorted"):
        raise SlurmSays("too many arguments for keyword:show")
    if entity in _ENTITIES:
        _ENTITIES[entity](app, named, asked)
    else:
        for line in _FIXED[entity]:
            click.echo(line, err=line.startswith("scontrol: "))


def _entity(word: str) -> str | None:
    """As in Slurm a beginning will do."""
    whole = {"jobid": "job", "jobs": "job", "nodes": "node", "partitions": "partition",
             "hostname": "hostnames", "hosts": "hostnames", "licenses": "licenses"}  # fmt: skip
    word = whole.get(word, word)
    known = [*_ENTITIES, *_FIXED]
    if word in known:
        return word
    begun = [name for name in known if name.startswith(word)]
    return begun[0] if begun else None


_FIXED: Mapping[str, tuple[str, ...]] = {
    "licenses": ("No licenses configured in Slurm.",),
    "topology": ("scontrol: error: No topology information available",),
    "daemons": ("slurmctld slurmd",),
    "burstbuffer": (),
    "bbstat": (),
    "dwstat": (),
    "federation": (),
}
_Answer = Callable[[App, Sequence[str], ShowOptions], None]
_ENTITIES: Mapping[str, _Answer] = {
    "job": show_jobs,
    "node": show_nodes,
    "partition": show_partitions,
    "step": show_steps,
    "reservation": show_reservations,
    "config": lambda app, rest, asked: show_config(app),
    "hostnames": lambda app, rest, asked: show_hosts("hostnames", rest),
    "hostlist": lambda app, rest, asked: show_hosts("hostlist", rest),
    "hostlistsorted": lambda app, rest, asked: show_hosts("hostlistsorted", rest),
}
_ALONE: Mapping[str, _Answer] = {
    "show": _show,
    "update": lambda app, rest, asked: update(app, rest),
    "write": lambda app, rest, asked: write(app, rest),
    "ping": lambda app, rest, asked: ping(app),
    "version": lambda app, rest, asked: click.echo(VERSION),
    "help": lambda app, rest, asked: click.echo(HELP),
    "wait_job": lambda app, rest, asked: wait_job(app, rest),
    "notify": lambda app, rest, asked: notify(app, rest),
    "listpids": lambda app, rest, asked: listpids(app, rest),
    "completing": lambda app, rest, asked: completing(app),
    # They set what the options of the same names do, for one call.
    **dict.fromkeys(
        ("all", "details", "hide", "oneliner", "quiet", "verbose", "exit", "quit"),
        lambda app, rest, asked: None,
    ),
}
