"""`sacctmgr`: shows accounts, users, associations, QOS, the cluster and TRES. It changes nothing.

Teams are changed by `dlq admin team`. Each verb that would change something is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.accounts import entities
from dlq_cli.slurm.accounts.associations import associations, users_of
from dlq_cli.slurm.accounts.clusters import CLUSTER_COLUMNS, CLUSTER_DEFAULT, this_cluster
from dlq_cli.slurm.accounts.table import AccountColumn, chosen, form_of, print_table
from dlq_cli.slurm.jobs.seen import QOS
from dlq_cli.slurm.words import Grammar, SlurmWords, read
from dlq_compat.version import VERSION

Row = TypeVar("Row")
GRAMMAR = Grammar(
    "sacctmgr",
    {
        "h": "help", "i": "immediate", "n": "noheader", "o": "oneliner", "p": "parsable",
        "P": "parsable2", "Q": "quiet", "r": "readonly", "s": "associations", "v": "verbose",
    },
    frozenset(),
    frozenset(
        {
            "associations", "help", "immediate", "noheader", "oneliner", "parsable", "parsable2",
            "quiet", "readonly", "usage", "verbose",
        }
    ),
    takes_words=True,
)  # fmt: skip
_CHANGES = "teams and their members are changed by `dlq admin team`, users by `dlq admin user`"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("add", "create", "modify", "delete", "remove"), _CHANGES),
    "load": _CHANGES,
    "dump": "dlq teams --json lists teams, their limits and their members",
    "archive": "the master keeps and forgets by [retention] in its configuration",
    "clear": "dlq keeps no statistics that are cleared",
    "reconfigure": "dlq's master is not steered by sacctmgr; see `dlq admin --help`",
    "shutdown": "dlq's master is not steered by sacctmgr; see `dlq admin --help`",
}
_NO_ENTITY = (
    "No valid entity in list command",
    'Input line must include "Account", "Association", "Cluster", "Configuration",',
    '"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",',
    '"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey"',
)
_UNKEPT: Mapping[str, str] = {
    "configuration": "`scontrol show config` has the cluster's settings",
    "event": "`sinfo -R` and `dlq nodes` say why nodes take no work",
    "problem": "dlq keeps no second database that could differ",
    "resource": "dlq has no licences",
    "reservation": "`scontrol show reservation` has them",
    "federation": "there is one cluster here",
    "runawayjobs": "dlq keeps no second database that could differ",
    "stats": "`sdiag` counts jobs",
    "transaction": "`dlq events` has the history of jobs",
    "wckey": "dlq has no wckeys",
}
_ENTITIES = ("account", "association", "cluster", "qos", "tres", "user", *_UNKEPT)
_FLAGS = frozenset(
    {"where", "withassoc", "withcoordinators", "withdeleted", "withsubaccounts", "wolimits",
     "wopinfo", "tree", "onlydefaults", "withraw", "withclusters"}
)  # fmt: skip
_FILTERS = {
    "account": "account", "accounts": "account", "acct": "account", "user": "user",
    "users": "user", "cluster": "cluster", "clusters": "cluster", "qos": "qos", "name": "name",
    "names": "name", "type": "type", "parent": "parent", "id": "id", "ids": "id",
    "defaultaccount": "default", "adminlevel": "role",
}  # fmt: skip


class _Asked(NamedTuple):
    """The words behind the entity."""

    columns: str
    filters: Mapping[str, frozenset[str]]
    flags: frozenset[str]


def main(app: App, words: Sequence[str]) -> None:
    """One command; without one nothing, as there is no prompt here."""
    given = read(GRAMMAR, words)
    if not given.rest:
        return
    verb, rest = given.rest[0].lower(), given.rest[1:]
    if verb in ("show", "list"):
        _show(app, rest, given)
    elif verb == "version":
        click.echo(VERSION)
    elif verb in ("help", "exit", "quit", "quiet", "verbose"):
        return
    elif verb in _REFUSED:
        raise SlurmSays(f"sacctmgr: error: {verb}: {_REFUSED[verb]}")
    else:
        raise SlurmSays(f"invalid keyword: {given.rest[0][:60]}")


def _entity(word: str) -> str:
    """As in Slurm a beginning will do, and a plural."""
    low = word.lower()
    found = [name for name in _ENTITIES if low and (name.startswith(low) or low == f"{name}s")]
    if not found:
        raise SlurmSays(*_NO_ENTITY)
    return found[0]


def _show(app: App, rest: Sequence[str], given: SlurmWords) -> None:
    entity = _entity(rest[0] if rest else "")
    if entity in _UNKEPT:
        raise SlurmSays(f"sacctmgr: error: {entity}: {_UNKEPT[entity]}")
    asked = _asked(rest[1:], bare={"association": ""}.get(entity, "name"))
    if entity == "association":
        _show_associations(app, asked, given)
    elif entity == "cluster":
        rows = [row for row in this_cluster(app) if _is(asked, "name", row.name)]
        _table(CLUSTER_COLUMNS, CLUSTER_DEFAULT, rows, asked, given)
    elif entity == "qos":
        rows_of_qos = [QOS] if _is(asked, "name", QOS) else []
        _table(entities.QOS_COLUMNS, entities.QOS_DEFAULT, rows_of_qos, asked, given)
    elif entity == "tres":
        kinds = [row for row in entities.TRES if _is(asked, "type", row[0])]
        _table(entities.TRES_COLUMNS, "type,name,id", kinds, asked, given)
    else:
        _show_holders(app, entity, asked, given)


def _asked(words: Sequence[str], *, bare: str) -> _Asked:
    """`where user=ann format=user%20 tree`; a bare word is a `bare` one."""
    columns, filters, flags = "", dict[str, frozenset[str]](), set[str]()
    for word in words:
        name, equals, value = word.partition("=")
        low = name.lower()
        listed = frozenset(part.strip("'\"") for part in value.split(",") if part)
        if equals and "format".startswith(low) and len(low) > 1:
            columns = f"{columns},{value}" if columns else value
        elif equals and low in _FILTERS:
            filters[_FILTERS[low]] = filters.get(_FILTERS[low], frozenset()) | listed
        elif not equals and low in _FLAGS:
            flags.add(low)
        elif not equals and bare:
            said = frozenset(part for part in name.split(",") if part)
            filters[bare] = filters.get(bare, frozenset()) | said
        else:
            raise SlurmSays(f" Unknown condition: {word[:60]}")
    return _Asked(columns, filters, frozenset(flags))


def _is(asked: _Asked, name: str, text: str) -> bool:
    wanted = asked.filters.get(name)
    return not wanted or text.lower() in {word.lower() for word in wanted}


def _table(
    columns: Mapping[str, AccountColumn[Row]],
    default: str,
    rows: Sequence[Row],
    asked: _Asked,
    given: SlurmWords,
) -> None:
    words = [word for word in (asked.columns or default).split(",") if word]
    found, unknown = chosen(columns, words)
    if unknown:
        raise SlurmSays(f"Unknown field '{unknown[:40]}'")
    print_table(found, rows, form_of(given.options))


def _show_associations(app: App, asked: _Asked, given: SlurmWords) -> None:
    rows = [
        row
        for row in associations(app)
        if _is(asked, "account", row.account)
        and _is(asked, "user", row.user)
        and _is(asked, "cluster", row.cluster)
        and _is(asked, "qos", QOS)
    ]
    columns = dict(entities.LINK)
    if "tree" in asked.flags:
        least = min((row.depth for row in rows), default=0)
        columns["account"] = AccountColumn(
            "Account", -20, lambda row: f"{' ' * (row.depth - least)}{row.account}"
        )
    _table(columns, entities.LINK_DEFAULT, rows, asked, given)


def _show_holders(app: App, entity: str, asked: _Asked, given: SlurmWords) -> None:
    linked = "associations" in given.options or "withassoc" in asked.flags
    links = associations(app)
    if entity == "account":
        accounts = [
            row
            for row in entities.accounts_rows(links, linked=linked)
            if _is(asked, "name", row.name) and _is(asked, "account", row.name)
        ]
        default = entities.ACCOUNT_DEFAULT + (entities.ACCOUNT_LINKED if linked else "")
        _table(entities.ACCOUNT, default, accounts, asked, given)
        return
    users = [
        row
        for row in entities.users_rows(app, users_of(app, links), linked=linked)
        if _is(asked, "name", row.name)
        and _is(asked, "user", row.name)
        and _is(asked, "default", row.default)
        and (row.link is None or _is(asked, "account", row.link.account))
    ]
    default = entities.USER_DEFAULT + (entities.USER_LINKED if linked else "")
    _table(entities.USER, default, users, asked, given)
