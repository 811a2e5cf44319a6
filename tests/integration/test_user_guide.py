"""The user guide, typed: every `dlq` command of its pages does on a cluster what the page says.

Job 17 of the pages is a job of the test that saves when it is asked to, in the state that the page
assumes. A command that follows something without end is stopped after some seconds.
"""

import getpass
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.harness import BIN, Daemons
from support.shown_commands import ROOT, blocks
from support.waiting import wait_until

pytestmark = [
    pytest.mark.long(
        "unit/house/test_docs_commands.py::test_a_command_that_is_shown_is_one_that_its_program_understands"
    )
]

PAGES = [
    *sorted((ROOT / "docs/using").glob("*.md")),
    *(ROOT / "docs/start" / name for name in ("first-job.md", "from-slurm.md", "resumable.md")),
]
# A job that saves, in place of the training scripts of the pages.
TRAINING = """\
import signal, sys, time
import dlq_train
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
run = dlq_train.init()
for step in range(3 if "short" in sys.argv else 10_000):
    run.beat(step + 1)
    if run.should_stop():
        run.save(step + 1, lambda place: (place / "state").write_text("saved"))
        run.leave()
    if run.should_save():
        run.save(step + 1, lambda place: (place / "state").write_text("saved"))
    time.sleep(0.05)
run.done()
"""
FILES = {
    "train.py": TRAINING,
    "train.sh": "#!/bin/sh\nexec python3 train.py short\n",
    "hello.sh": "#!/bin/sh\n#DLQ --gpus 1\n#DLQ --time 10m\necho hello\n",
    "eval.sh": "#!/bin/sh\ntrue\n",
    "prepare.sh": "#!/bin/sh\ntrue\n",
    "eat.sh": "#!/bin/sh\ntrue\n",
    "sort.sh": "#!/bin/sh\ntrue\n",
    "report.sh": "#!/bin/sh\ntrue\n",
    "train.slurm": "#!/bin/sh\n#SBATCH -J moved\n#SBATCH --gres=gpu:1\n#SBATCH -t 10\ntrue\n",
    "job.toml": 'command = ["true"]\n[resources]\ngpus = 1\n',
    "rl.toml": "command = 'true'\n[members.learner]\nends = 'all'\n[members.actor]\n",
    "small.yaml": "lr: 0.1\n",
    "data.csv": "1,2\n",
}
# The jobs that the pages speak of. Job 17 runs and saves; an update changes one that waits.
JOBS = {
    "12": "-a 0-99%4 --hold -- true",
    "13": "-a 0-9 --hold -- true",
    "14": "--hold -G 1 -- true",
    "16": "--hold -G 1 -- true",
    "17": "-G 1 --queue default -- python3 train.py",
    "18": "--hold -G 1 -- true",
}
GANG = "-N 2 --gpus-per-node 3 --launch per-gpu -- python3 train.py"
WAITING = {"12": JOBS["12"], "17": "--hold -G 4 -- true"}
# Commands for which the cluster of the test lacks something, with the words of the refusal.
REFUSED = {
    "dlq submit --image": "no node runs containers",
    "dlq submit --cpus 32": "nodes with 32 cores",
    "dlq submit --cores": "no node gives cores to CPU jobs",
    "dlq submit --gpus 0": "no node gives cores to CPU jobs",
    "dlq submit --gpu-type h100,a100": "no node has a100 GPUs",
    "dlq exec -t": "-t needs a terminal",
    "dlq run -G 1 --pty": "--pty needs a terminal",
    "dlq exec 17 -- nvidia-smi": "the command could not be run",
    "dlq shell --rank 1 17": "has ranks 0 to 0",
    "dlq forward --rank 3 17": "has ranks 0 to 0",
    "dlq notebook -G": "is queued",  # no Jupyter here
    "dlq logs --rank worker:2": "the job has no roles",
    "dlq doctor --node": "",
    "dlq profile show 17": "none of its starts was recorded",
    "dlq move lab:17": "has run already",
    "dlq data describe": "does not exist",
    "dlq data stage": "no data is called",
    "dlq submit --to any --data": "no data is called",
    "dlq diff 17 1 2": "has no attempt 2",
    "dlq notify test": "there is no rule n17",
    "dlq notify remove": "there is no rule n17",
}
NUMBER = r"(?<![\w.-])(?<!-G )(1[2-8])(?![\w:]*:\d\d\b)(?=_|\b)"
PATIENCE = ("timeout", "-s", "INT", "-k", "10", "3")
STOPPED = 124  # by timeout(1): it follows something that goes on


def _commands(page: Path) -> Iterator[list[str]]:
    """The lines of each shell block that shows `dlq`."""
    for text in blocks(page):
        whole = re.sub(r"\\\n\s*", " ", text)
        lines = [line.strip() for line in whole.splitlines() if line.startswith("dlq ")]
        if lines:
            yield lines


def _numbers(text: str) -> list[str]:
    """The numbers of jobs that commands name, each once."""
    return sorted({found[1] for found in re.finditer(NUMBER, text)} & set(JOBS))


class Reader:
    """A user who types what a page shows, on a cluster."""

    def __init__(self, cluster: Daemons, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self._path = f"{home}:{BIN}:{os.environ['PATH']}"
        self.numbers: dict[str, str] = {}

    def begin(self, page: Path, lines: list[str]) -> None:
        """Submit the jobs of a block. Where job 17 gets a stop or a signal, it has saved before."""
        self._sh("dlq cancel --kill -y -u me || true")
        for number in _numbers(" ".join(lines)):
            self._submit(number, GANG if page.name == "gangs.md" else JOBS[number])
        if re.search(r"dlq (pause|requeue|checkpoint|signal)\b", " ".join(lines)):
            wait_until(self._has_saved, what="job 17 has saved")

    def _submit(self, number: str, words: str) -> None:
        done = self._sh(f"dlq submit --parsable {words}")
        assert done.returncode == 0, done.stderr
        self.numbers[number] = done.stdout.strip()

    def _has_saved(self) -> bool:
        return self._sh(f"dlq checkpoint {self.numbers['17']}").returncode == 0

    def types(self, line: str) -> subprocess.CompletedProcess[str]:
        """One line of a page, with the numbers of this cluster and dates that are to come."""
        if line.startswith("dlq update "):
            for number in _numbers(line):
                if number in WAITING:
                    self._submit(number, WAITING[number])
        made = re.search(r"spec (?:init|convert \S+ -o) (\S+)", line)
        if made is not None:
            (self.home / made[1]).unlink(missing_ok=True)
        numbered = re.sub(NUMBER, lambda found: self.numbers.get(found[1], found[1]), line)
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d")
        return self._sh(re.sub(r"2026-1[12]-\d\d(?=T)", tomorrow, numbered))

    def _sh(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PATIENCE, "bash", "-c", line.partition("  #")[0]],
            cwd=self.home,
            env=os.environ
            | self.cluster.environment()
            | {"NO_COLOR": "1", "PATH": self._path, "HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = tmp_path_factory.mktemp("guide")
    names = ("gpu01", "gpu02", "gpu03", "gpu04")
    with Daemons(root, names, twin=True).up() as daemons:
        for name in names:
            daemons.said("admin", "node", "label", name, "rack=r1", "disk=fast")
        for team in ("nlp", "vision"):
            daemons.said("admin", "team", "set", team, "--gpus", "16")
            daemons.said("admin", "team", "add-user", team, getpass.getuser())
        daemons.said("admin", "policy", "set", "-y", "dlq")
        tables = "".join(f'[clusters.{name}]\nhome = "."\n' for name in ("lab", "roof"))
        (root / "home" / "clusters.toml").write_text(tables)
        yield daemons


@pytest.fixture
def reader(cluster: Daemons, tmp_path: Path) -> Reader:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "dlq_train").symlink_to(ROOT / "client/dlq_train")
    (tmp_path / "torchrun").write_text("#!/bin/sh\nexec python3 train.py short\n")
    (tmp_path / "torchrun").chmod(0o755)
    return Reader(cluster, tmp_path)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_what_a_page_shows_works(reader: Reader, page: Path) -> None:
    failed = []
    for lines in _commands(page):
        reader.begin(page, lines)
        for line in lines:
            done = reader.types(line)
            refused = next((REFUSED[one] for one in REFUSED if line.startswith(one)), None)
            if refused is not None:
                assert done.returncode != 0, f"{line}: works now, take it out of REFUSED"
                assert refused in done.stderr, f"{line}: {done.stderr}"
            elif done.returncode not in (0, STOPPED):
                failed.append(f"{line}\n  exit {done.returncode}: {done.stderr[-300:]}")
    assert not failed, "\n".join(failed)
