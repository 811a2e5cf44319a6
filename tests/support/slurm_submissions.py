"""Asks a real Slurm what it makes of sbatch's options, and writes tests/data/slurm_submissions.json.

    PYTHONPATH=tests python tests/support/slurm_submissions.py

Of each line of options: the exit code, stderr, the facts of `scontrol show job`, and the SLURM_*
variables of the batch script.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from support.ports import free_ports
from support.real_slurm import RealSlurm

RECORD = Path(__file__).parents[1] / "data" / "slurm_submissions.json"
_FACTS = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "NtasksPerN:B:S:C", "TimeLimit", "QOS",
          "MinMemoryNode", "MinMemoryCPU", "MinCPUsNode", "TresPerJob", "TresPerNode",
          "TresPerTask", "TresPerSocket", "Dependency", "Requeue", "Nice", "OverSubscribe",
          "StartTime", "EligibleTime", "JobState", "Reason", "NodeList", "CpusPerTres",
          "MemPerTres", "NtasksPerTRES")  # fmt: skip
LINES = """\

-n 1
-n 3
-n 8
-n 64
-n 65
-n 100
-n 128
-n 129
-N 2
-N 1-2
-N 2-2
-N 1-2 -n 3
-N 2 -n 2
-N 2 -n 3
-N 2 -n 5
-N 2 -n 1
-N 3
-n 4 --ntasks-per-node=2
-n 5 --ntasks-per-node=2
-N 2 --ntasks-per-node=3
-N 2 -n 4 --ntasks-per-node=3
--ntasks-per-node=4
-c 4
-n 3 -c 4
-n 3 -c 30
-n 2 -c 65
-N 2 -n 3 -c 4
-N 2 --ntasks-per-node=2 -c 8
-G 1
-G 8
-G 9
-G 16
-G 17
-G h100:2
-G a100:1
-G 2 -n 2
-G 2 -N 2
-G 3 -N 2
-G 4 -n 4 -N 2
-n 3 -N 2 -G 2
--gpus-per-node=2
--gpus-per-node=h100:2
--gpus-per-node=2 -N 2
--gpus-per-node=9
--gpus-per-task=1
--gpus-per-task=1 -n 4
--gpus-per-task=1 -n 10
--gpus-per-task=2 -n 3 -N 2
--gpus-per-task=2 --gpus=4
--gpus-per-task=1 -N 2 --ntasks-per-node=2
--gpus-per-task=2 -c 4 -n 2
--ntasks-per-gpu=2 -G 2
--ntasks-per-gpu=2 -n 4
--ntasks-per-gpu=2 --gpus-per-node=2 -N 2
--ntasks-per-gpu=1 --gpus-per-task=1
--gres=gpu
--gres=gpu:2
--gres=gpu:h100:2
--gres=gpu:0
--gres=gpu:2 -N 2
--gres=gpu:2 -n 4
--gres=gpu:2 -n 4 -N 2
--gres=license:1
--gres=gpu:1,gpu:2
--gres=none
--gpus=0
--gpus=4 --gpus-per-node=2
--gpus=4 --gpus-per-node=2 -N 2
--gpus=3 --gpus-per-node=2
--cpus-per-gpu=4 -G 2
--cpus-per-gpu=4 --gres=gpu:2
--cpus-per-gpu=4
--cpus-per-gpu=4 -G 1 -c 2
--cpus-per-gpu=4 --gpus-per-task=1 -n 2
--mem=4G
--mem=4000
--mem=0
--mem=4T
--mem-per-cpu=2G
--mem-per-cpu=2G -n 4
--mem-per-gpu=8G -G 2
--mem=1G --mem-per-cpu=1G
--exclusive
--exclusive=user
-O -n 200
-O -n 4
-s
--tres-per-task=gres:gpu:1
--gpus-per-socket=1
--gpu-bind=closest -G 2
--gpu-bind=single:1 -n 2 -G 2
--gpu-bind=bogus -G 2
--hint=nomultithread
--hint=bogus
--cpu-bind=none
--distribution=cyclic -n 4 -N 2
-m block:block -n 4 -N 2
-m bogus -n 4
--ntasks-per-core=1 -n 2
--ntasks-per-socket=1 -n 2
--mincpus=4
--mincpus=4 -N 2
-n 0
-n x
-N 0
-c 0
-G x
-N 2-1
--use-min-nodes -n 2
-k
--no-requeue
--requeue
--nice
--nice=5
--time=5
--time=5:30
--time=1:2:3
--time=1-2
--time=1-2:3
--time=1-2:3:4
--time=0
--time=UNLIMITED
--time=x
--time=-5
--qos=normal
--qos=high
--account=alpha
--partition=nosuch
--nodelist=node2
--nodelist=node9
--exclude=node1
--constraint=big
--reservation=r
--licenses=x:1
--switches=1
--signal=USR1
--signal=B:USR1@30
--signal=R:TERM@10
--signal=bogus
--begin=now+1hour
--begin=bogus
--dependency=afterok:99999
--dependency=singleton
--dependency=bogus:1
--dependency=afterany:99999?afterok:99998
--array=0-3
--array=0-3%2
--array=1-10:2%3
--array=x
--array=5-1
--array=0-99999
--export=NONE
--export=A=1
--export=NIL
--get-user-env
--chdir=/tmp
--chdir=/nosuch
--comment=hello
--mail-type=END --mail-user=a
--mail-type=BOGUS
--open-mode=append
--open-mode=x
--priority=5
--uid=99999
--clusters=nosuch
--deadline=now+1hour
--tmp=1G
--wckey=w
--container=x
--bb=x
--core-spec=1
--thread-spec=1
--threads-per-core=1
--cores-per-socket=1
--sockets-per-node=1
-B 1:1:1
--spread-job -N 2
--contiguous
--profile=none
--power=level
--propagate
--acctg-freq=1
--bogus
-n
--nodes
--hold
--parsable
--parsable -Q
--test-only
--test-only -n 129
-n 2 : -n 3
""".split("\n")[:-1]  # fmt: skip


def record(slurm: RealSlurm, words: str, folder: Path) -> dict[str, Any]:
    """Submit one script with these options, and wait for its end where it can run."""
    output = folder / "env"
    output.unlink(missing_ok=True)
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\nenv | grep -e ^SLURM -e ^CUDA_V -e ^TMPDIR -e ^PWD | sort\n")
    call = ["sbatch", "-o", str(output), *words.split(), str(script)]
    if ":" in words.split():
        call = ["sbatch", *words.split(), str(script)]
    said = subprocess.run(call, capture_output=True, text=True, timeout=30.0, cwd=folder)
    made: dict[str, Any] = {"code": said.returncode, "out": said.stdout, "err": said.stderr}
    number = re.search(r"\d+", said.stdout)
    if said.returncode or number is None or "test-only" in words:
        return made
    seen = slurm.said("scontrol", "-o", "show", "job", number[0]).splitlines()[0]
    end_s = time.monotonic() + 8.0
    while time.monotonic() < end_s and "JobState=COMPLETED" not in seen:
        time.sleep(0.2)
        seen = slurm.said("scontrol", "-o", "show", "job", number[0]).splitlines()[-1]
        if "JobState=PENDING" in seen and re.search(r"Reason=(?!None|Priority|Resources)", seen):
            break
    slurm.said("scancel", number[0])
    facts = dict(re.findall(r"(\S+?)=(\S*)", seen))
    made["job"] = {name: facts[name] for name in _FACTS if name in facts}
    if output.exists():
        made["env"] = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return made


def main() -> None:
    """Record all lines."""
    made = {}
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        root = Path(name)
        (root / "jobs").mkdir()
        (root / "slurm").mkdir()
        with RealSlurm(root / "slurm", free_ports(3)[0], nodes=2, gpu_type="h100") as slurm:
            for words in LINES:
                made[words] = record(slurm, words, root / "jobs")
        text = json.dumps(made, indent=1, sort_keys=True).replace(name, "/slurm")
    origin = "sbatch of Debian's slurm-wlm 22.05.8 on two nodes of 64 CPUs and eight h100 each"
    RECORD.write_text(f'{{"origin": "{origin}; tests/support/slurm_submissions.py",\n"lines": {text}}}\n')  # noqa: E501


if __name__ == "__main__":
    main()
