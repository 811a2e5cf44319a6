"""The files that users hand in, with changes: each is read, or refused in words that name it."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from attack.extent import SEED
from attack.forging import TEXTS, Forger
from dlq_cli.spec.check import check
from dlq_cli.spec.message import to_message
from dlq_cli.spec.slurm.convert import convert
from dlq_cli.spec.slurm.converted import as_script, as_toml
from dlq_cli.spec.template import FORMS, template
from dlq_common.errors import DlqError
from support.extent import times
from support.proofs import proved

ROOT = Path(__file__).parents[2]
FILES = times(300, 5_000)
MOST = int(os.environ.get("MESSAGES", "1000000")) // 20
LONGEST_WORDS = 2_000
SHELL: Mapping[str, str] = {}
TOKEN = re.compile(r"[A-Za-z0-9_.:+@/-]+")
NUMBERS = ("0", "-1", "1e9", "99999999999999999999", "0x10", "1.5", "1-0", "1-00:00:00", "٣", "1_0")
SBATCH = """#!/bin/bash
#SBATCH --job-name=train --array=0-9%2
#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:h100:4
#SBATCH --time=1-12:00:00 --mem=64G --cpus-per-task=8
#SBATCH --output=logs/%x-%A_%a.out --signal=B:USR1@120
#SBATCH --dependency=afterok:12:13,singleton --exclude=gpu[01-04,7]
#SBATCH --mail-type=END,FAIL --container-image=nvcr.io#nvidia/pytorch:24.01
#DLQ --compat=slurm
srun --gpus-per-task=1 python train.py "$SLURM_ARRAY_TASK_ID"
"""


def real_files() -> dict[str, str]:
    """Files as people write them, by name."""
    names = {"toml": "job.toml", "yaml": "job.yaml", "script": "job.sh"}
    made = {f"all-{names[form]}": _all_keys(template(form)) for form in FORMS}
    made |= {names[form]: template(form) for form in FORMS}
    made["softmax.sh"] = (ROOT / "examples/jobs/softmax.sh").read_text()
    made["train.sbatch"] = SBATCH
    made["plain.sbatch"] = SBATCH.replace("#DLQ --compat=slurm\n", "")
    return made


def _all_keys(text: str) -> str:
    """A template whose keys all count; that is not valid, and each is read."""
    return "\n".join(
        line.removeprefix("# ") if " = " in line else line for line in text.split("\n")
    )


class Changes:
    """Changed files, all from one seed."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._forger = Forger(seed, {})
        self._real = real_files()
        words = {word for text in self._real.values() for word in TOKEN.findall(text)}
        self._words = sorted(words)

    def next(self) -> tuple[str, bytes]:
        """A name, and the bytes of that file."""
        chance = self._chance
        name = chance.choice(list(self._real))
        text = self._real[name]
        if chance.random() < 0.1:
            return name, self._forger.bend(text.encode())
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            text = chance.choice((self._word, self._line, self._insert, self._cut))(text)
        return name, text.encode("utf-8", "surrogatepass")

    def _word(self, text: str) -> str:
        """One word has another one in its place."""
        found = self._chance.choice(list(TOKEN.finditer(text)) or [None])
        if found is None:
            return text
        other = self._chance.choice((TEXTS, NUMBERS, self._words))
        word: str = self._chance.choice(other)
        return text[: found.start()] + word + text[found.end() :]

    def _line(self, text: str) -> str:
        """One line is gone, comes twice, or goes elsewhere."""
        lines = text.split("\n")
        line = lines.pop(self._chance.randrange(len(lines)))
        for _ in range(self._chance.randrange(3)):
            lines.insert(self._chance.randint(0, len(lines)), line)
        return "\n".join(lines)

    def _insert(self, text: str) -> str:
        at = self._chance.randint(0, len(text))
        return text[:at] + self._chance.choice(TEXTS) + text[at:]

    def _cut(self, text: str) -> str:
        return text[: self._chance.randint(0, len(text))]


def outcome(name: str, content: bytes) -> str:
    """What becomes of a file; any other error than a refusal is raised."""
    checked = check(content, name, directory="/home/ada", shell=SHELL)
    for problem in checked.problems:
        assert problem.text.strip(), "a refusal has words"
        assert len(problem.text) < LONGEST_WORDS
    assert (checked.spec is None) == bool(checked.problems)
    if checked.spec is not None:
        to_message(checked.spec).SerializeToString()
    if not name.endswith((".sh", ".sbatch")):
        return "read" if checked.spec else "refused"
    try:
        made = convert(content.decode("utf-8", "replace"), name)
        as_script(made, keep=True)
        as_toml(made)
    except DlqError:
        return "read" if checked.spec else "refused"
    return "converted"


def fuzzed(count: int) -> Counter[str]:
    """So many files; how often each outcome came."""
    changes, found = Changes(str(SEED)), Counter[str]()
    for _ in range(count):
        name, content = changes.next()
        try:
            found[outcome(name, content)] += 1
        except Exception as error:
            raise AssertionError(f"{name}: {content!r}") from error
    return found


def test_a_changed_file_is_read_or_refused_in_words() -> None:
    found = fuzzed(FILES)
    assert found["read"] > FILES / 50
    assert found["refused"] > FILES / 10


def test_the_real_files_are_read() -> None:
    read = [name for name, text in real_files().items() if not name.startswith("all-")]
    told = {
        name: check(real_files()[name].encode(), name, directory="/", shell=SHELL) for name in read
    }
    assert [name for name in read if told[name].problems] == []


@pytest.mark.torture
def test_many_changed_files_are_read_or_refused_in_words() -> None:
    found = fuzzed(MOST)
    print(json.dumps(found))  # noqa: T201 - the figures of the run
    proved("job files", tracebacks=0, files=MOST, **found)
