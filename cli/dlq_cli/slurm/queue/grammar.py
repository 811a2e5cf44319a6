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
            "noconvert", "noheader", "sibling", "start", "verbose", "yaml",
        }
    ),
    optional=frozenset({"jobs", "steps"}),
    same={
        "accounts": "account", "cluster": "clusters", "names": "name", "nodes": "nodelist",
        "partitions": "partition", "users": "user",
    },
    usage=(
        "Usage: squeue [-A account] [--clusters names] [-i seconds] [--job jobid]\n"
        "              [-n name] [-o format] [-p partitions] [--qos qos]\n"
        "              [--reservation reservation] [--sort fields] [--start]\n"
        "              [--step step_id] [-t states] [-u user_name] [--usage]\n"
        "              [-L licenses] [-w nodes] [--federation] [--local] [--sibling]\n"
        "\t      [-ahjlrsv]"
    ),
)  # fmt: skip
