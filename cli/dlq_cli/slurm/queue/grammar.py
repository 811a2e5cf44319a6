"""The options of squeue."""

from __future__ import annotations

from dlq_cli.slurm.words import Grammar

GRAMMAR = Grammar(
    "squeue",
    {
        "A": "account", "a": "all", "h": "noheader", "i": "iterate", "j": "jobs", "L": "licenses",
        "l": "long", "M": "clusters", "n": "name", "O": "Format", "o": "format", "p": "partition",
        "q": "qos", "R": "reservation", "r": "array", "s": "steps", "S": "sort", "t": "states",
        "u": "user", "v": "verbose", "w": "nodelist",
    },
    frozenset(
        {
            "account", "accounts", "clusters", "cluster", "format", "Format", "iterate", "jobs",
            "licenses", "name", "names", "nodelist", "nodes", "partition", "partitions", "qos",
            "reservation", "sort", "states", "steps", "user", "users",
        }
    ),
    frozenset(
        {
            "all", "array", "array-unique", "federation", "hide", "json", "local", "long", "me",
            "noconvert", "noheader", "sibling", "start", "usage", "verbose", "yaml",
        }
    ),
    optional=frozenset({"jobs", "steps"}),
    same={
        "accounts": "account", "cluster": "clusters", "names": "name", "nodes": "nodelist",
        "partitions": "partition", "users": "user",
    },
    usage="\n".join(
        (
            "Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]",
            "              [-n name] [-o format] [-p partitions] [--qos qos]",
            "              [--reservation reservation] [--sort fields] [--start]",
            "              [--step step_id] [-t states] [-u user_name] [--usage]",
            "              [-L licenses] [-w nodes] [--federation] [--local] [--sibling]",
            "\t      [-ahjlrsv]",
        )
    ),
)  # fmt: skip
