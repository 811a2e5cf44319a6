"""The page docs/reliability.md: each claim, what was run to break it, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import ROOT
from benchmarks.prove.campaigns import Campaign
from benchmarks.prove.parts import words_of
from benchmarks.prove.results import Result, kept
from benchmarks.support.report import number

PATH = ROOT / "docs" / "reliability.md"
HEAD = """\
<!-- Generated from benchmarks/prove/results by benchmarks/prove/page.py; do not edit. -->

# Proofs of reliability

Each section has a claim, its goal, and the last run that tried to break it. `make prove` runs the
short form of all campaigns, `make prove FULL=1` the full form. `ONLY='kills partitions'` runs some,
and `PART=3/10` the third of ten parts of the full form. The figures of parts are summed.
A run that fails leaves its last lines here.

"""


def write_page(campaigns: Sequence[Campaign]) -> None:
    """Write it from the results that are kept."""
    PATH.write_text(page_text(campaigns, {each.name: kept(each.name) for each in campaigns}))


def page_text(campaigns: Sequence[Campaign], results: dict[str, Result | None]) -> str:
    """Its text."""
    told = [results[campaign.name] for campaign in campaigns]
    sections = "\n".join(_section(each, results[each.name]) for each in campaigns)
    return HEAD + sections + _machines([one for one in told if one is not None])


def _parted(conditions: str) -> tuple[str, str]:
    """The load, and everything else."""
    words = conditions.split(", ")
    load = next((word for word in words if word.startswith("load ")), "load unknown")
    return load, ", ".join(word for word in words if word != load)


def _machines(results: Sequence[Result]) -> str:
    """Each machine with its software, and what ran there."""
    names = dict[str, list[str]]()
    for one in results:
        names.setdefault(_parted(one.conditions)[1], []).append(one.campaign)
    rows = [(", ".join(those), machine) for machine, those in names.items()]
    return (
        "\n## Conditions\n\n"
        + _table(("campaigns", "machine and software"), rows).rstrip("\n")
        + "\n"
    )


def _section(campaign: Campaign, result: Result | None) -> str:
    head = f"## {campaign.name.capitalize()}\n\n{campaign.claim}\n\nGoal: {campaign.goal}\n\n"
    if result is None:
        return f"{head}Not run yet.\n"
    told = _of_parts(campaign, result) if result.parts else _of_run(result)
    if result.failed:
        return f"{head}{told}\n**It failed:**\n\n```text\n{result.failed}\n```\n"
    return f"{head}{told}\n{_tables(result.found)}"


def _of_run(result: Result) -> str:
    form = "full" if result.full else "short"
    return (
        f"Run on {result.day} at commit {result.commit}, {form} form, {_lasted(result.took_s)}, "
        f"{_parted(result.conditions)[0]}.\n"
    )


def _of_parts(campaign: Campaign, result: Result) -> str:
    whole = sum(command.whole() for command in campaign.commands)
    what = ", ".join(command.size.lower() for command in campaign.commands)
    return words_of([each for each in result.parts if not each.failed], whole, what) + "\n"


def _tables(found: Sequence[dict[str, Any]]) -> str:
    """One table for each benchmark, and one for all runs of one kind."""
    text, kinds = "", dict[tuple[str, ...], list[dict[str, Any]]]()
    for one in found:
        if "figures" in one:
            rows = [(each["name"], _value(each["value"], each["unit"])) for each in one["figures"]]
            text += _table((one["benchmark"], "measured"), rows)
        else:
            kinds.setdefault(tuple(one), []).append(one)
    for names, runs in kinds.items():
        head = [name.replace("_", " ") for name in names]
        text += _table(head, [[_value(one[name]) for name in names] for one in runs])
    return text


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _value(value: object, unit: str = "") -> str:
    text = number(value) if isinstance(value, int | float) else str(value)
    return f"{text} {unit}".strip()


def _lasted(seconds: int) -> str:
    return f"{seconds} s" if seconds < 180 else f"{seconds // 60} min"
