"""The Python hook: exact parameter sizes, a user's own sitecustomize, and no trace of itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dlq_profiler.records.control import switch, write_control
from support.watched_programs import ROOT, Ran, run

HOOK = ROOT / "profiler" / "dlq_profiler" / "hook"
# As much of torch as the hook touches.
FAKE_TORCH = {
    "torch/__init__.py": "from torch import distributed, nn\n",
    "torch/distributed.py": (
        "_DEFAULT_FIRST_BUCKET_BYTES = 1048576\n"
        "def get_rank(group): return group[0]\n"
        "def get_world_size(group): return group[1]\n"
    ),
    "torch/nn/__init__.py": "from torch.nn import parallel\n",
    "torch/nn/parallel/__init__.py": (
        "from torch.nn.parallel.distributed import DistributedDataParallel\n"
    ),
    "torch/nn/parallel/distributed.py": (
        "class DistributedDataParallel:\n"
        "    def __init__(self, module, *, cap=25):\n"
        '        """The class\' own words."""\n'
        "        self.module, self.bucket_bytes_cap = module, cap << 20\n"
        "        self.process_group, self.parameters_to_ignore = (1, 4), {'left'}\n"
    ),
}
JOB = """
from torch.nn.parallel import DistributedDataParallel as DDP
class P:
    def __init__(self, n, size, grad=True): self.n, self.size, self.requires_grad = n, size, grad
    numel = lambda self: self.n
    element_size = lambda self: self.size
    dtype = 'torch.float16'
class M:
    def named_parameters(self):
        return [('w', P(1000, 2)), ('b', P(10, 2)), ('left', P(5, 2)), ('frozen', P(7, 2, False))]
ddp = DDP(M(), cap=10)
print(ddp.bucket_bytes_cap, DDP.__init__.__doc__)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    where = tmp_path / "site"
    for name, text in FAKE_TORCH.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    return where


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    where = tmp_path / "recorded"
    where.mkdir()
    write_control(where)
    return where


def _python(code: str, *path: Path, recorded: Path | None = None, options: str = "") -> Ran:
    environment = {"PYTHONPATH": os.pathsep.join(map(str, path)), "DLQ_PROF_DIR": ""}
    if recorded:
        environment["DLQ_PROF_DIR"] = str(recorded)
    return run(sys.executable, *options.split(), "-c", code, environment=environment)


def _told(recorded: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in recorded.glob("*.tensors.json")]


def test_the_models_parameters_are_told(site: Path, recorded: Path) -> None:
    assert _python(JOB, HOOK, site, recorded=recorded) == _python(JOB, site)
    (facts,) = _told(recorded)
    assert facts.pop("pid") > 1
    assert facts == {
        "version": 1,
        "method": "torch-ddp",
        "rank": 1,
        "world_size": 4,
        "models": [
            {
                "bucket_cap_bytes": 10 << 20,
                "first_bucket_bytes": 1 << 20,
                "parameters": [
                    {"name": "w", "elements": 1000, "bytes": 2000, "dtype": "float16"},
                    {"name": "b", "elements": 10, "bytes": 20, "dtype": "float16"},
                ],
            }
        ],
    }
    assert [path.name for path in recorded.iterdir() if path.name.startswith(".")] == []


def test_a_forked_child_tells_for_itself(site: Path, recorded: Path) -> None:
    fork = "import os\nif os.fork() == 0:\n    DDP(M())\n    os._exit(0)\nos.wait()\nDDP(M())\n"
    assert _python(JOB + fork, HOOK, site, recorded=recorded).returncode == 0
    assert sorted(len(facts["models"]) for facts in _told(recorded)) == [1, 2]


@pytest.mark.parametrize("wrong", ["off", "no control", "no directory", "closed"])
def test_where_it_cannot_tell_it_is_silent(site: Path, recorded: Path, wrong: str) -> None:
    alone = _python(JOB, site)
    if wrong == "off":
        switch(recorded, on=False)
    elif wrong == "no control":
        (recorded / "control").unlink()
    elif wrong == "closed":
        (recorded / "control").rename(recorded / "other")
        (recorded / "control").mkdir()
    where = recorded / "gone" if wrong == "no directory" else recorded
    assert _python(JOB, HOOK, site, recorded=where) == alone
    assert _told(recorded) == []


def test_a_class_that_is_not_there_any_more(site: Path, recorded: Path) -> None:
    (site / "torch/nn/parallel/distributed.py").write_text("DistributedDataParallel = 5\n")
    code = "from torch.nn.parallel import DistributedDataParallel as D; print(D)"
    assert _python(code, HOOK, site, recorded=recorded) == _python(code, site)


SAYS_WHAT_IT_SEES = """
import sys
site = sys.modules.get("sitecustomize")
print(site and site.__file__, getattr(site, "MARK", None), sys.path, "importlib" in sys.modules)
"""


@pytest.mark.parametrize("own", [None, "MARK = 7\n", "MARK = 7\nraise ValueError('user')\n"])
def test_the_users_own_sitecustomize_is_the_one_that_counts(
    tmp_path: Path, recorded: Path, own: str | None
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    if own:
        (users / "sitecustomize.py").write_text(own)
    alone = _python(SAYS_WHAT_IT_SEES, users)
    hooked = _python(SAYS_WHAT_IT_SEES, HOOK, users, recorded=recorded)
    assert hooked == alone
    assert hooked.returncode == 0


def test_its_source_can_still_be_read(site: Path, recorded: Path) -> None:
    code = (
        "import inspect, torch.nn.parallel.distributed as d\n"
        "print(inspect.getsource(d), d.__loader__, d.__spec__.loader, d.__spec__.origin)\n"
        "print(inspect.signature(d.DistributedDataParallel.__init__))\n"
    )
    same = [line.split(" at 0x")[0] for line in _python(code, site).stdout.splitlines()]
    hooked = _python(code, HOOK, site, recorded=recorded)
    assert hooked.returncode == 0, hooked.stderr
    assert [line.split(" at 0x")[0] for line in hooked.stdout.splitlines()] == same


def test_isolated_pythons_do_not_see_it(site: Path, recorded: Path) -> None:
    for options in ("-S", "-E", "-I"):
        code = "import sys; print(any('dlq' in str(f) for f in sys.meta_path))"
        hooked = _python(code, HOOK, recorded=recorded, options=options)
        assert (hooked.returncode, hooked.stdout, hooked.stderr) == (0, "False\n", "")
