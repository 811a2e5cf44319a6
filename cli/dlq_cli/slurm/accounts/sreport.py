"""`sreport`: refused by name, report by report, with the command of dlq that has the figures.

Slurm reports CPU minutes, which dlq does not count: `dlq usage` has GPU hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.words import Grammar, read

GRAMMAR = Grammar(
    "sreport",
    {
        "a": "all_clusters", "h": "help", "M": "cluster", "n": "noheader", "p": "parsable",
        "P": "parsable2", "Q": "quiet", "t": "time", "T": "tres", "v": "verbose",
    },
    frozenset({"cluster", "time", "tres"}),
    frozenset(
        {
            "all_clusters", "federation", "help", "local", "noheader", "parsable", "parsable2",
            "quiet", "usage", "verbose",
        }
    ),
    takes_words=True,
)  # fmt: skip
_BY_USER = "`dlq usage --by user` has GPU hours"
_REPORTS: Mapping[str, Mapping[str, str]] = {
    "cluster": {
        "AccountUtilizationByUser": "`dlq usage --by team,user` has GPU hours",
        "UserUtilizationByAccount": "`dlq usage --by user,team` has GPU hours",
        "UserUtilizationByWckey": "dlq has no wckeys",
        "Utilization": "`dlq report usage` has GPU hours, used, idle and withheld",
        "WCKeyUtilizationByUser": "dlq has no wckeys",
    },
    "job": {
        "SizesByAccount": "dlq keeps no sizes of jobs by account: `dlq history --json`",
        "SizesByAccountAndWcKey": "dlq has no wckeys",
        "SizesByWckey": "dlq has no wckeys",
    },
    "reservation": {"Utilization": "dlq runs no job in reservations"},
    "user": {"TopUsage": _BY_USER},
}


def main(app: App, words: Sequence[str]) -> None:
    """The reason why the report is not here."""
    given = read(GRAMMAR, words)
    if not given.rest:
        return
    kind = given.rest[0].lower()
    reports = next((_REPORTS[name] for name in _REPORTS if name.startswith(kind)), None)
    if reports is None:
        raise SlurmSays(f"invalid keyword: {given.rest[0][:60]}")
    asked = given.rest[1].lower() if len(given.rest) > 1 else ""
    why = next((reports[name] for name in reports if asked and name.lower().startswith(asked)), "")
    if not why:
        names = [f'"{name}"' for name in reports]
        listed = ", ".join(names[:-1]) + (", and " if names[1:] else "") + names[-1]
        what = given.rest[1][:60] if asked else ""
        if kind.startswith("job"):  # as it is there
            listed = '"SizesByAccount, SizesByAccountAndWcKey, and  SizesByWckey"'
        raise SlurmSays(f"Not valid report {what}", f"Valid {kind} reports are, {listed}")
    raise SlurmSays(f"sreport: error: {kind} {given.rest[1]}: {why}")
