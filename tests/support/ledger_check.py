"""Judges a torture run from outside: what was promised, what really ran, what the master says.

    ledger_check.py DIRECTORY

DIRECTORY holds three files of JSON lines, written by three parties that do not know each other:
`promises` by the clients (what the master acknowledged), `ledger` by the jobs themselves, and
`rows` by the master at the end. It imports nothing of the product. Prints the counts as one JSON
object; the exit code is 1 if anything is wrong, and every wrong is on standard error.
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

Line = dict[str, Any]
CANCELLED = "JOB_STATE_CANCELLED"


def main() -> None:
    """Read, judge, print."""
    directory = Path(sys.argv[1])
    promises, ledger, rows = (_lines(directory / name) for name in ("promises", "ledger", "rows"))
    wrongs = judge(promises, ledger, rows)
    for wrong in wrongs:
        sys.stderr.write(f"{wrong}\n")
    found = counts(promises, ledger, rows) | {"wrong": len(wrongs)}
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.exit(1 if wrongs else 0)


def judge(promises: list[Line], ledger: list[Line], rows: list[Line]) -> list[str]:
    """Everything that is not as promised, as sentences."""
    jobs = {row["job_id"]: row for row in rows}
    accepted = {one["job_id"]: one for one in promises if one["what"] == "accepted"}
    cancelled = {one["job_id"]: one for one in promises if one["what"] == "cancelled"}
    story: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in ledger:
        story[line["job"], line["rank"]].append(line)
    wrongs = [
        f"job {line['job']} ran twice at once: {line}"
        for line in ledger
        if line["what"] == "overlap"
    ]
    wrongs += [
        f"job {job_id} was accepted and is lost" for job_id in accepted if job_id not in jobs
    ]
    wrongs += [
        f"job {job_id} exists and was promised to nobody"
        for job_id in jobs.keys() - accepted.keys()
    ]
    for job_id in accepted.keys() & jobs.keys():
        ranks = {rank: lines for (job, rank), lines in story.items() if job == job_id}
        if job_id in cancelled:
            wrongs += _of_cancelled(jobs[job_id], ranks, cancelled[job_id])
        else:
            wrongs += _of_run(jobs[job_id], ranks, accepted[job_id])
    wrongs += _of_keys(promises)
    strangers = {job for job, _ in story} - set(jobs)
    return wrongs + [f"job {job} ran and the master does not know it" for job in strangers]


def _of_run(row: Line, ranks: dict[str, list[Line]], promise: Line) -> list[str]:
    name = f"job {row['job_id']}"
    wrongs = []
    if row["exit_code"] != promise["exit_code"]:
        wrongs.append(f"{name} ended with {promise['exit_code']}, the master says {row}")
    if len(ranks) != promise["ranks"]:
        wrongs.append(f"{name} has {promise['ranks']} ranks, {len(ranks)} ran")
    for rank, lines in ranks.items():
        told = Counter(line["what"] for line in lines)
        if told["start"] != 1:
            wrongs.append(f"{name} rank {rank} was started {told['start']} times")
        elif told["stop"] != 1:
            wrongs.append(f"{name} rank {rank} was killed while it ran")
        if any(line["fence"] != row["fence"] for line in lines):
            wrongs.append(
                f"{name} rank {rank} ran under another fence than {row['fence']}: {lines}"
            )
    return wrongs


def _of_cancelled(row: Line, ranks: dict[str, list[Line]], promise: Line) -> list[str]:
    name = f"job {row['job_id']}"
    wrongs = []
    if row["state"] != CANCELLED and promise["state"] == CANCELLED:
        wrongs.append(f"{name} was cancelled, the master says {row}")
    for rank, lines in ranks.items():
        starts = [line for line in lines if line["what"] == "start"]
        if len(starts) > 1:
            wrongs.append(f"{name} rank {rank} was started {len(starts)} times")
    return wrongs


def _of_keys(promises: list[Line]) -> list[str]:
    """One request is one job, however often it was asked, and two requests are two."""
    made: dict[str, set[str]] = defaultdict(set)
    asked: dict[str, set[str]] = defaultdict(set)
    for one in promises:
        if one["what"] == "accepted":
            made[one["request_id"]].add(one["job_id"])
            asked[one["job_id"]].add(one["request_id"])
    wrongs = [f"request {key} made jobs {sorted(ids)}" for key, ids in made.items() if len(ids) > 1]
    return wrongs + [
        f"job {job} answers requests {sorted(keys)}" for job, keys in asked.items() if len(keys) > 1
    ]


def counts(promises: list[Line], ledger: list[Line], rows: list[Line]) -> dict[str, int]:
    """What was looked at."""
    told = Counter(line["what"] for line in ledger)
    return {
        "accepted": len({one["job_id"] for one in promises if one["what"] == "accepted"}),
        "asked_again": sum(one["what"] == "accepted" for one in promises)
        - len({one["request_id"] for one in promises if one["what"] == "accepted"}),
        "cancelled": sum(one["what"] == "cancelled" for one in promises),
        "jobs": len(rows),
        "starts": told["start"],
        "stops": told["stop"],
        "overlaps": told["overlap"],
        "more_than_one_attempt": sum(row["attempts"] > 1 for row in rows),
    }


def _lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
