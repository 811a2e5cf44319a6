"""`make reproduce`: compute what is missing, then write the pages.

    python -m benchmarks.reproduce [NAME ...] [--full] [--workers 2] [--draft] [--list]

A name is that of a case or of a page. Results are kept by content under build/reproduce, so that a
run goes on where it was killed. Pages are written from a clean commit only; `--draft` writes them
under build/reproduce/draft from whatever there is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool

from benchmarks import ROOT
from benchmarks.reproduce.case import Case, Done
from benchmarks.reproduce.kept import HOME, Kept
from benchmarks.reproduce.pages import FORMS, PAGES, Outcome, Stamp, write_page
from benchmarks.reproduce.registry import all_cases, chosen
from benchmarks.reproduce.running import SourcesChangedError, plan, run_parts
from benchmarks.reproduce.sources import forget, key

DRAFT = HOME.parent / "draft"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute, then write every page that is complete."""
    options = _options().parse_args(arguments)
    every = all_cases()
    try:
        wanted = chosen(options.name, every)
    except ValueError as error:
        sys.exit(str(error))
    if options.list:
        _list(wanted, Kept())
        return
    commit, dirty = _commit(), _changed()
    if dirty and not options.draft:
        sys.exit(f"pages come from a commit, and {dirty[0]} is not committed: commit, or --draft")
    kept = Kept()
    failed = compute(wanted, kept, options.full, options.workers)
    if _commit() != commit:
        sys.exit("another commit came meanwhile: run it again, what still holds is kept")
    forget()
    stamp = Stamp(f"{commit}-changed" if dirty else commit, time.strftime("%Y-%m-%d"), options.full)
    found = outcomes(every, kept, stamp)
    for page in dict.fromkeys(case.page for case in wanted):
        own = [case for case in every if case.page == page]
        if lacking := [case.name for case in own if case.name not in found]:
            print(f"{page} stays as it is: {', '.join(lacking)} lacks results in this form")
            continue
        write_page(page, [found[case.name] for case in own], DRAFT if options.draft else PAGES)
        print(f"{page}: written")
    sys.exit(f"{failed} parts failed" if failed else 0)


def compute(cases: Iterable[Case], kept: Kept, full: bool, workers: int) -> int:
    """All parts that are not kept; how many failed."""
    here = []
    for case in cases:
        if lost := missing(case, full):
            print(f"{case.name} is left out: {lost}")
        else:
            here.append(case)
    parts = plan(here, full, kept)
    todo = [part for own, part in parts.items() if kept.get(own) is None]
    left_min = sum(part.cost_s for part in todo) / 60
    print(
        f"{FORMS[full]}: {len(here)} tables, {len(parts)} parts, {len(parts) - len(todo)} of them "
        f"kept; about {left_min:.1f} CPU minutes for the rest, {workers} at once",
        flush=True,
    )
    try:
        return len(run_parts(todo, kept, workers, _say))
    except SourcesChangedError as error:
        sys.exit(f"{error} changed meanwhile: run it again, what still holds is kept")
    except BrokenProcessPool:
        sys.exit("a process was killed: run it again, what ended is kept")


def outcomes(cases: Iterable[Case], kept: Kept, stamp: Stamp) -> Mapping[str, Outcome]:
    """The cases of which all parts are kept for the sources as they are."""
    found = {}
    for case in cases:
        if lost := missing(case, stamp.full):
            found[case.name] = Outcome(case, stamp, (), {}, lost)
            continue
        words = case.parts_of(stamp.full)
        inputs = case.inputs_of(stamp.full)
        keys = [key(case.run, each, inputs) for each in words]
        results = [result for own in keys if (result := kept.get(own)) is not None]
        if len(results) == len(words):
            done = [Done(each, one.value) for each, one in zip(words, results, strict=True)]
            took_s = {own: one.cpu_s for own, one in zip(keys, results, strict=True)}
            found[case.name] = Outcome(case, stamp, done, took_s)
    return found


def missing(case: Case, full: bool) -> str:
    """The first input that is not here, in words: logs that are too large for the repository."""
    try:
        case.inputs_of(full)
    except FileNotFoundError as error:
        return str(error)
    return ""


def _list(cases: Sequence[Case], kept: Kept) -> None:
    """Each case as it was declared, then all together from parts as they were last measured."""
    for case in cases:
        print(
            f"{case.page:<22} {case.name:<32} {case.short.cpu_s / 60:5.1f} CPU min, whole "
            f"{case.full.cpu_s / 60:6.1f}"
        )
    for full in (False, True):
        print(estimate([case for case in cases if not missing(case, full)], kept, full))


def estimate(cases: Iterable[Case], kept: Kept, full: bool) -> str:
    """The CPU minutes of a form. A part counts once, as last measured under any sources. Without
    that it counts as its case declares.
    """
    parts = plan(cases, full, kept)
    measured_s = [cost_s for own in parts if (cost_s := kept.cost_s(own)) is not None]
    all_s = sum(part.cost_s for part in parts.values())
    return (
        f"{FORMS[full]}: {all_s / 60:.1f} CPU minutes in {len(parts)} parts; {len(measured_s)} of "
        f"them were measured, {sum(measured_s) / 60:.1f} CPU minutes"
    )


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _commit() -> str:
    return _git("rev-parse", "--short=10", "HEAD")


def _changed() -> list[str]:
    """Files that are not as committed; the pages themselves may be."""
    ours = str(PAGES.relative_to(ROOT))
    said = _git("status", "--porcelain", "--", ".", f":(exclude){ours}").splitlines()
    return [line[3:] for line in said]


def _git(*words: str) -> str:
    asked = ["git", *words]
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.rstrip()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", nargs="*", help="cases or pages; all without a name")
    parser.add_argument("--full", action="store_true", help="the whole form: a night")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--draft", action="store_true", help="pages go to build/reproduce/draft")
    parser.add_argument("--list", action="store_true", help="the cases and their CPU minutes")
    return parser


if __name__ == "__main__":
    main()
