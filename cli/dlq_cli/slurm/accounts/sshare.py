"""`sshare`: shares and recent usage of teams and of their members.

RawUsage is GPU-seconds lately, by the half-life of the policy. FairShare is Slurm's classic factor
of usage over share, 2^(-u/s).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.accounts.associations import ROOT, Association, associations
from dlq_cli.slurm.accounts.table import AccountColumn, chosen, form_of, print_table
from dlq_cli.slurm.words import Grammar, SlurmWords, only_here, read

GRAMMAR = Grammar(
    "sshare",
    {
        "A": "accounts", "a": "all", "e": "helpformat", "h": "noheader", "l": "long",
        "M": "clusters", "m": "partition", "n": "noheader", "o": "format", "p": "parsable",
        "P": "parsable2", "u": "users", "U": "Users", "v": "verbose",
    },
    frozenset({"accounts", "clusters", "cluster", "format", "user", "users"}),
    frozenset(
        {
            "all", "help", "helpformat", "long", "noheader", "parsable", "parsable2", "partition",
            "usage", "Users", "verbose",
        }
    ),
    takes_words=True,
    same={"cluster": "clusters", "user": "users"},
)  # fmt: skip
_USAGE = "Usage:  sshare [-aehlmnpPUv] [-A accounts] [-M cluster] [-o format] [-u users]"
_DEFAULT = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
_LONG = (
    "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,"
    "GrpTRESMins,TRESRunMins"
)


def _effective(row: Association) -> float:
    """Its part of what was used beside it."""
    if row.account == ROOT:
        return 1.0
    return row.use.use_ratio * row.normal_share


def _fair(row: Association) -> str:
    return f"{2**-row.use.use_ratio:.6f}" if row.user else ""


def _level(row: Association) -> str:
    if row.account == ROOT:
        return ""
    return f"{1 / row.use.use_ratio:.6f}" if row.use.use_ratio else "inf"


def _usage(row: Association) -> str:
    return str(int(row.use.usage_gpu_seconds))


COLUMNS = {
    column.heading.lower(): column
    for column in (
        AccountColumn[Association](
            "Account", -20, lambda row: " " * (row.depth - row.above) + row.account
        ),
        AccountColumn[Association]("Cluster", 20, lambda row: row.cluster),
        AccountColumn[Association]("EffectvUsage", 13, lambda row: f"{_effective(row):.6f}"),
        AccountColumn[Association]("FairShare", 10, _fair),
        AccountColumn[Association]("GrpTRESMins", 30, lambda row: ""),
        AccountColumn[Association]("GrpTRESRaw", 30, lambda row: f"gres/gpu={_usage(row)}"),
        AccountColumn[Association]("ID", 6, lambda row: "0"),
        AccountColumn[Association]("LevelFS", 10, _level),
        AccountColumn[Association]("NormShares", 11, lambda row: f"{row.normal_share:.6f}"),
        AccountColumn[Association](
            "NormUsage", 11, lambda row: f"{_effective(row):.6f}" if row.account != ROOT else ""
        ),
        AccountColumn[Association]("Partition", 12, lambda row: ""),
        AccountColumn[Association](
            "RawShares", 10, lambda row: f"{row.share:g}" if row.account != ROOT else ""
        ),
        AccountColumn[Association]("RawUsage", 11, _usage),
        AccountColumn[Association]("TRESRunMins", 30, lambda row: ""),
        AccountColumn[Association]("User", 10, lambda row: row.user),
    )
}


def main(app: App, words: Sequence[str]) -> None:
    """The caller's associations below their accounts; with -a everybody's that may be seen."""
    given = read(GRAMMAR, words)
    if "helpformat" in given.options:
        names = [f"{column.heading:<17}" for column in COLUMNS.values()]
        lines = [" ".join(names[at : at + 4]) for at in range(0, len(names), 4)]
        click.echo("\n".join(lines))
        return
    if {"help", "usage"} & given.options.keys():
        click.echo(_USAGE)
        return
    only_here(app, given, GRAMMAR)
    columns, unknown = chosen(COLUMNS, _format(given))
    if unknown:
        raise SlurmSays(f'sshare: error: Invalid field requested: "{unknown[:40]}"')
    print_table(columns, _rows(app, given), form_of(given.options))


def _format(given: SlurmWords) -> list[str]:
    if "format" in given.options:
        return given.listed("format")
    text = _LONG if "long" in given.options else _DEFAULT
    return (
        text.replace("User,", "User,Partition,") if "partition" in given.options else text
    ).split(",")


def _rows(app: App, given: SlurmWords) -> list[Association]:
    users = set(given.listed("users"))
    if "Users" in given.options or not (users or "all" in given.options):
        users = {app.connection().identity.user}
    accounts = set(given.listed("accounts"))
    alone = "Users" in given.options
    rows = [
        row
        for row in associations(app)
        if (not accounts or row.account in accounts)
        and (not users or row.user in users or (not row.user and not alone))
    ]
    least = min((row.depth for row in rows), default=0)
    return [row._replace(above=least) for row in rows]
