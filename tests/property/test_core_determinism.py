"""The same story gives the same plans in every process, whatever its hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.extent import some, times

pytestmark = pytest.mark.long(
    "sim/test_determinism.py",
)

TESTS = Path(__file__).parents[1]

CHOICES: list[tuple[str, dict[str, str]]] = [
    ("best-effort", {"place": "spread"}),
    ("yarn-cs", {"place": "spread", "quota": "default:0.7"}),
    ("themis", {"place": "spread"}),
    ("edf", {"place": "spread", "preempt": "free"}),
    ("edf-preemptive", {"place": "consolidate", "preempt": "free"}),
    ("3sigma", {"place": "spread", "preempt": "free"}),
    ("genie", {"place": "consolidate"}),
    ("afs", {"place": "spread", "preempt": "free"}),
    ("gandiva-elastic", {"place": "consolidate"}),
    ("aryl", {}),
    ("aryl", {"place": "spread", "preempt": "free", "size": "rollout"}),
    ("timeslice", {"place": "spread"}),
    ("sf", {"place": "consolidate"}),
    ("lf", {"place": "spread", "preempt": "free"}),
    ("srsf", {"place": "consolidate", "preempt": "free"}),
    ("tiresias-gittins", {"thresholds": "100,900", "refresh": "3"}),
    ("tiresias-las", {"thresholds": "100,900", "starve_limit_s": "400"}),
    ("tiresias-las", {"place": "count", "preempt": "free", "order": "first-start"}),
]
STORY = """
import json
import random
import sys
from dlq_master.model.resources import Request
from dlq_master.model.jobs.reward import soft, strict
from support.builders import World, a_job, a_node
for policy, settings in json.loads(sys.argv[1]):
    draw = random.Random(5)
    nodes = [a_node(f"node-{draw.random()}", draw.choice([2, 4, 8])) for _ in range(12)]
    world = World(policy, nodes, **settings)
    told = []
    for number in range(1, int(sys.argv[2])):
        gpus = draw.choice([1, 1, 2, 4, 8, 16])
        request = Request(gpus=gpus, sizes=draw.choice([(), (gpus, 2 * gpus), (gpus, gpus + 1)]))
        world.submit(a_job(number, request=request, priority_base=draw.randrange(2),
            duration_estimate_s=draw.choice([None, 40.0, 400.0]),
            steps=draw.choice([(), strict(90.0), soft([(60.0, 100.0), (600.0, 20.0)])])))
        world.now_s += draw.choice([0.0, 1.0, 31.0])
        if world.running and draw.random() < 0.6:
            world.finish(draw.choice(world.running))
        for job_id in world.leaving:
            world.leave(job_id)
        told.append(world.settle_moves().plan())
        world.decide()
    print(told)
"""


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    first, *others = [plans(hash_seed) for hash_seed in some(("0", "4711", "1"), 2)]
    assert len(first) == len(CHOICES)
    for number, (policy, settings) in enumerate(CHOICES):
        assert "Start(" in first[number], policy
        for other in others:
            assert other[number] == first[number], (policy, settings)


def plans(hash_seed: str) -> list[str]:
    """What each choice decides in a process of this hash seed."""
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)}
    run = subprocess.run(
        [sys.executable, "-c", STORY, json.dumps(CHOICES), str(times(60, 120))],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()
