"""The options of sacct."""

from __future__ import annotations

from dlq_cli.slurm.words import Grammar

GRAMMAR = Grammar(
    "sacct",
    {
        "a": "allusers", "A": "accounts", "b": "brief", "B": "batch-script", "c": "completion",
        "C": "constraints", "D": "duplicates", "e": "helpformat", "E": "endtime", "f": "file",
        "F": "flags", "g": "group", "h": "help", "i": "nnodes", "I": "ncpus", "j": "jobs",
        "k": "timelimit-min", "K": "timelimit-max", "l": "long", "L": "allclusters",
        "M": "clusters", "n": "noheader", "N": "nodelist", "o": "format", "p": "parsable",
        "P": "parsable2", "q": "qos", "r": "partition", "s": "state", "S": "starttime",
        "T": "truncate", "u": "user", "v": "verbose", "W": "wckeys", "x": "associations",
        "X": "allocations",
    },
    frozenset(
        {
            "account", "accounts", "associations", "clusters", "cluster", "constraints",
            "delimiter", "endtime", "file", "flags", "format", "gid", "group", "jobs", "name",
            "ncpus", "nnodes", "nodelist", "partition", "qos", "reason", "starttime", "state",
            "timelimit-max", "timelimit-min", "uid", "units", "user", "wckeys",
        }
    ),
    frozenset(
        {
            "allclusters", "allocations", "allusers", "batch-script", "brief", "completion",
            "duplicates", "env-vars", "federation", "help", "helpformat", "json", "local", "long",
            "noconvert", "noheader", "parsable", "parsable2", "truncate", "usage", "verbose",
            "whole-hetjob", "yaml",
        }
    ),
    takes_words=True,
    same={"account": "accounts", "cluster": "clusters", "gid": "group", "uid": "user"},
    tries_help=False,
)  # fmt: skip
