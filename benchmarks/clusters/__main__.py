"""Many clusters at scale: offers against broadcast, random and least loaded.

    python -m benchmarks.clusters [--members 100] [--gpus 10000] [--jobs-per-day 10000000]
        [--days 1] [--load 0.95] [--longest 6] [--error 0.5] [--told-every 10,600] [--ask 2,100]
        [--choose RULE ...] [--way WAY ...] [--seeds 1] [--keep FILE] [--json]

Jobs are drawn from Microsoft's Philly log. Each cluster serves first come, first served, with gangs
whole; its offer is the start that it foretells from foretold run times. `--told-every`: the
greatest age of an answer, in s. All clusters are empty at first, so waits and use count from the
hour of the longest run time on. With `--keep FILE` a killed run goes on after its last row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.clusters.drawn_jobs import draw_jobs
from benchmarks.clusters.simulated import CHOICES, WAYS, run_clusters
from benchmarks.support.conditions import conditions


class Row(NamedTuple):
    """One run: how a cluster is chosen, how old answers are, how many clusters are asked, and the
    rule among their offers.
    """

    way: str
    told_every_s: float
    ask: int
    choose: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.way} {self.told_every_s:g} {self.ask} {self.choose} {self.seed}"


def rows(words: argparse.Namespace) -> Iterator[Row]:
    """All runs, in their order."""
    ages = [float(one) for one in words.told_every.split(",")]
    asks = [min(int(one), words.members) for one in words.ask.split(",")]
    for seed in range(1, words.seeds + 1):
        for way in words.way:
            for told_s in ages if way in ("offers", "least-loaded") else ages[:1]:
                for ask in asks if way == "offers" else [words.members]:
                    for choose in words.choose if way == "offers" else words.choose[:1]:
                        yield Row(way, told_s, ask, choose, seed)


def run_row(row: Row, words: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run. Waits in s."""
    began_s = time.process_time()
    jobs = draw_jobs(
        row.seed,
        jobs=round(words.jobs_per_day * words.days),
        days=words.days,
        members=words.members,
        gpus=words.gpus,
        load=words.load,
        longest_s=words.longest * 3_600.0,
        error=words.error,
        with_deadline=words.deadlines,
    )
    found = run_clusters(
        jobs,
        row.way,
        members=words.members,
        gpus=words.gpus,
        told_every_s=row.told_every_s,
        ask=row.ask,
        choose=row.choose,
        seed=row.seed,
        since_s=words.longest * 3_600.0,
        tell=lambda done: _progress(row, done, len(jobs.submit_s)),
    )
    count = len(jobs.submit_s)
    # Clusters are empty at first: jobs of that time wait less, and are left out.
    wait_s = found.wait_s[jobs.submit_s >= words.longest * 3_600.0]
    return {
        "way": row.way,
        "answers_at_most_s_old": row.told_every_s
        if row.way in ("offers", "least-loaded")
        else None,
        "asked": row.ask if row.way == "offers" else None,
        "rule": row.choose if row.way == "offers" else None,
        "seed": row.seed,
        "jobs": count,
        "wait_mean_s": round(float(wait_s.mean()), 1),
        "wait_p50_s": round(float(np.percentile(wait_s, 50)), 1),
        "wait_p99_s": round(float(np.percentile(wait_s, 99)), 1),
        "waited_over_an_hour_percent": round(100.0 * float((wait_s > 3_600.0).mean()), 2),
        "messages_per_job": round(found.messages / count, 1),
        "promised": found.promised,
        "kept_percent": round(100.0 * found.kept / found.promised, 2) if found.promised else None,
        "started_twice": found.double_starts,
        "used_percent": round(100.0 * found.used, 1),
        "cpu_s": round(time.process_time() - began_s),
    }


def _progress(row: Row, done: int, count: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{row.key}: {done:,} of {count:,} jobs ")


def main() -> None:
    words = _words()
    kept: dict[str, Any] = {}
    setting = {key: value for key, value in sorted(vars(words).items()) if key in _SETTING}
    if words.keep and words.keep.exists():
        told = json.loads(words.keep.read_text())
        if told["setting"] != setting:
            raise SystemExit(f"{words.keep} is of another setting: {told['setting']}")
        kept = told["rows"]
    for row in rows(words):
        if row.key not in kept:
            kept[row.key] = run_row(row, words)
            if words.keep:
                _write(words.keep, {"setting": setting, "rows": kept})
    found = [kept[row.key] for row in rows(words)]
    if words.json:
        print(json.dumps({"conditions": conditions(), "setting": setting, "rows": found}))
        return
    print(f"conditions: {conditions()}\nsetting: {json.dumps(setting)}")
    names = list(found[0])
    widths = [max(len(name), *(len(str(one[name])) for one in found)) for name in names]
    for line in (names, *([one[name] for name in names] for one in found)):
        cells = ("-" if one is None else str(one) for one in line)
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))


def _write(path: Path, told: dict[str, Any]) -> None:
    temporary = path.with_suffix(".next")
    temporary.write_text(json.dumps(told, indent=1))
    temporary.replace(path)


_SETTING = ("members", "gpus", "jobs_per_day", "days", "load", "longest", "error", "deadlines")


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters")
    parser.add_argument("--members", type=int, default=100, help="clusters")
    parser.add_argument("--gpus", type=int, default=10_000, help="of one cluster")
    parser.add_argument("--jobs-per-day", type=int, default=10_000_000)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--load", type=float, default=0.95, help="GPU-time of all jobs over all")
    parser.add_argument("--longest", type=float, default=6.0, help="run time of a job, in hours")
    parser.add_argument("--error", type=float, default=0.5, help="of foretold run times")
    parser.add_argument("--deadlines", type=float, default=0.2, help="share of jobs with one")
    parser.add_argument("--told-every", default="10,600", help="greatest age of an answer, in s")
    parser.add_argument("--ask", default="2,100", help="clusters that are asked for an offer")
    parser.add_argument("--choose", nargs="+", choices=CHOICES, default=CHOICES, metavar="RULE")
    parser.add_argument("--way", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a file of the rows that are done")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
