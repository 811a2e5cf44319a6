"""The page docs/reliability.md: each claim, what was run to break it, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import ROOT
from benchmarks.prove.bounds import Standing, Verdict, judged
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

Each figure that a goal names has a bound. The bounds come from the project's twelve goals, or from
an issue, and a missed one makes its campaign fail. *Not measured* means that the last run told no
such figure. *Full form only* means that a short run is too small for it.

"""


def write_page(campaigns: Sequence[Campaign]) -> None:
    """Write it from the results that are kept."""
    PATH.write_text(page_text(campaigns, {each.name: kept(each.name) for each in campaigns}))


def page_text(campaigns: Sequence[Campaign], results: dict[str, Result | None]) -> str:
    """Its text."""
    told = [results[campaign.name] for campaign in campaigns]
    sections = "\n".join(_section(each, results[each.name]) for each in campaigns)
    return (
        HEAD
        + _standing(campaigns, results)
        + sections
        + _machines([one for one in told if one is not None])
    )


def _standing(campaigns: Sequence[Campaign], results: dict[str, Result | None]) -> str:
    """One line for each campaign, with its form, its end, and the count of its bounds."""
    rows = []
    for campaign in campaigns:
        result = results[campaign.name]
        link = f"[{campaign.name}](#{campaign.name})"
        if result is None:
            rows.append((link, "not run yet", "", ""))
            continue
        all_ = [each.standing for each in _verdicts(campaign, result)]
        told = ", ".join(f"{all_.count(each)} {each}" for each in Standing if each in all_)
        form = "full" if result.full else "parts" if result.parts else "short"
        rows.append((link, form, "FAILED" if result.failed else "ended well", told))
    return _table(("campaign", "form", "the run", "its bounds"), rows)


def _verdicts(campaign: Campaign, result: Result) -> list[Verdict]:
    return judged(campaign.bounds, result.found, full=result.full)


def _bounds(verdicts: Sequence[Verdict]) -> str:
    """Each bound beside what was found; why some may be missed."""
    if not verdicts:
        return ""
    rows = [
        (each.bound.words, each.bound.limit, each.worst, each.standing, each.bound.source)
        for each in verdicts
    ]
    reasons = [
        f"*{each.bound.words}*: {each.bound.reason}"
        for each in verdicts
        if each.standing == Standing.MISSED and each.bound.reason
    ]
    table = _table(("figure", "bound", "found", "verdict", "from"), rows)
    return table + "".join(f"{reason}\n\n" for reason in reasons)


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
    failed = f"\n**It failed:**\n\n```text\n{result.failed}\n```\n" if result.failed else ""
    tables = _bounds(_verdicts(campaign, result)) + _tables(result.found)
    return f"{head}{told}{failed}\n{tables}".rstrip("\n") + "\n"


def _of_run(result: Result) -> str:
    form = "full" if result.full else "short"
    return (
        f"Run on {result.day} at commit {_commit(result.commit)}, {form} form, "
        f"{_lasted(result.took_s)}, {_parted(result.conditions)[0]}.\n"
    )


def _commit(name: str) -> str:
    """The commit, and whether more than it was run."""
    return f"{name} (with changes that are in no commit)" if name.endswith("-dirty") else name


def _of_parts(campaign: Campaign, result: Result) -> str:
    whole = sum(command.whole() for command in campaign.commands)
    what = ", ".join(command.size.lower() for command in campaign.commands)
    return words_of(result.parts, whole, what) + "\n"


def _tables(found: Sequence[dict[str, Any]]) -> str:
    """One table for each benchmark, and one for all runs of one kind."""
    text, kinds = "", dict[tuple[str, ...], list[dict[str, Any]]]()
    for one in found:
        if "figures" in one:
            rows = [
                (each["name"], _value(each["value"], each["unit"]), _goal(each))
                for each in one["figures"]
            ]
            text += _table((one["benchmark"], "measured", "goal"), rows)
        else:
            kinds.setdefault(tuple(one), []).append(one)
    for names, runs in kinds.items():
        head = [name.replace("_", " ") for name in names]
        text += _table(head, [[_value(one[name]) for name in names] for one in runs])
    return text


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _goal(figure: Mapping[str, Any]) -> str:
    """The goal of a benchmark's figure, and whether this run has met it."""
    goal = figure.get("goal")
    return f"{goal}: {'met' if figure.get('met') else 'not met'}" if goal else ""


def _value(value: object, unit: str = "") -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    text = number(value) if isinstance(value, int | float) else str(value)
    return f"{text} {unit}".strip()


def _lasted(seconds: int) -> str:
    return f"{seconds} s" if seconds < 180 else f"{seconds // 60} min"
