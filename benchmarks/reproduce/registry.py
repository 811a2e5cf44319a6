"""All cases: those of the modules in `cases/`, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import walk_packages

from benchmarks.reproduce import cases
from benchmarks.reproduce.case import Case


def all_cases() -> tuple[Case, ...]:
    """In the order of their modules and lists. ValueError for a name that is there twice."""
    found: dict[str, Case] = {}
    for module in walk_packages(cases.__path__, f"{cases.__name__}."):
        for case in () if module.ispkg else import_module(module.name).CASES:
            if case.name in found:
                raise ValueError(f"there are two cases {case.name!r}")
            found[case.name] = case
    return tuple(found.values())


def chosen(words: Sequence[str], there: Iterable[Case]) -> list[Case]:
    """The cases with these names or on these pages; all without words."""
    every = list(there)
    names = {case.name for case in every} | {page_word(case) for case in every}
    if unknown := [word for word in words if word.removesuffix(".md") not in names]:
        raise ValueError(f"there is no case or page {unknown[0]!r}: {', '.join(sorted(names))}")
    wanted = {word.removesuffix(".md") for word in words}
    return [case for case in every if not words or {case.name, page_word(case)} & wanted]


def page_word(case: Case) -> str:
    """The page without its ending."""
    return case.page.removesuffix(".md")
