"""The command lines of Slurm's programs: long and short options, with values or without.

Also jobs by the ids that these programs are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.lists.select import several_jobs
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.suggest import did_you_mean


class Grammar(NamedTuple):
    """The options of a program. A short letter stands for a long name."""

    program: str
    short: Mapping[str, str]
    valued: frozenset[str]
    switches: frozenset[str]
    refused: Mapping[str, str]  # options of Slurm's that the stand-in knows and does not do: why
    takes_words: bool = False  # beside options


class SlurmWords(NamedTuple):
    """The given words: options by their long names (the last one counts), and the rest."""

    options: Mapping[str, str]
    rest: tuple[str, ...]

    def listed(self, name: str) -> list[str]:
        """The values of an option that takes a list with commas."""
        return [word.strip() for word in self.options.get(name, "").split(",") if word.strip()]


def read(grammar: Grammar, words: Sequence[str]) -> SlurmWords:
    """Options and the rest, in any order, as getopt reads them. InvalidRequest for an unknown
    or refused one.
    """
    options: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            _enter(grammar, options, name, value if equals else None, left)
        else:
            _enter_short(grammar, options, word[1:], left)
    if rest and not grammar.takes_words:
        raise InvalidRequest(f"{grammar.program}: {rest[0]!r} is no option")
    for name, why in grammar.refused.items():
        if name in options:
            raise InvalidRequest(f"{grammar.program}: --{name}: {why}")
    return SlurmWords(options, tuple(rest))


def _enter_short(grammar: Grammar, options: dict[str, str], letters: str, left: list[str]) -> None:
    """`-hj 12`, `-j12`, `-o=%i`."""
    while letters:
        letter, letters = letters[0], letters[1:]
        name = grammar.short.get(letter)
        if name is None:
            raise _unknown(grammar, f"-{letter}")
        if name in grammar.switches:
            options[name] = ""
            continue
        _enter(grammar, options, name, letters.removeprefix("=") or None, left)
        return


def _enter(
    grammar: Grammar, options: dict[str, str], name: str, value: str | None, left: list[str]
) -> None:
    name = _whole(grammar, name)
    if name in grammar.switches:
        options[name] = value or ""
        return
    if value is None:
        if not left:
            raise InvalidRequest(f"{grammar.program}: --{name} needs a value")
        value = left.pop(0)
    before = options.get(name)
    joined = name == "jobs" and before  # submitit writes one -j for each
    options[name] = f"{before},{value}" if joined else value


def _whole(grammar: Grammar, name: str) -> str:
    """The option's full name: as getopt, a beginning will do where only one begins so."""
    known = grammar.valued | grammar.switches
    if name in known:
        return name
    begun = [each for each in known if name and each.startswith(name)]
    if len(begun) != 1:
        raise _unknown(grammar, f"--{name}")
    return begun[0]


def _unknown(grammar: Grammar, word: str) -> InvalidRequest:
    known = [f"--{name}" for name in sorted(grammar.valued | grammar.switches)]
    return InvalidRequest(
        f"{grammar.program}: dlq's stand-in knows no {word[:40]}{did_you_mean(word, known)}",
        hint="options: " + " ".join(known),
    )


def only_here(app: App, given: SlurmWords, grammar: Grammar) -> str:
    """The cluster's name where `-M` asks for it (or for all), empty without -M. InvalidRequest for
    another cluster's.
    """
    asked = given.listed("clusters")
    if not asked:
        return ""
    own = app.connection().identity.cluster
    for name in asked:
        if name.lower() not in {"all", own.lower()}:
            raise InvalidRequest(
                f"{grammar.program}: No cluster {name[:40]!r} known", hint=f"this one is {own}"
            )
    return own


def ended(code: int) -> None:
    """End with an exit code other than 0."""
    if code:
        raise exit_codes.Ended(code)


def known_jobs(jobs: Jobs, ids: Sequence[str]) -> Sequence[job_pb2.Job]:
    """The jobs of `17`, `12_4`, `12`, `12_[0-3]`; of a step such as `17.batch` its job."""
    words = list(dict.fromkeys(each.partition(".")[0] for each in ids))
    try:
        return _listed(jobs, words)
    except NotFound:
        pass
    found: dict[str, job_pb2.Job] = {}
    for word in words:
        try:
            found.update((job.job_id, job) for job in _listed(jobs, [word]))
        except NotFound:
            continue
    return list(found.values())


def _listed(jobs: Jobs, words: Sequence[str]) -> Sequence[job_pb2.Job]:
    return jobs.list(job_ids=several_jobs(jobs, words)).jobs
