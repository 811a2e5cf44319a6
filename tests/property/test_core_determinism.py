"""The same story gives the same plans in every process, whatever its hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

STORY = """
import random
from dlq_master.model.resources import Request
from dlq_master.model.reward import soft, strict
from support.builders import World, a_job, a_node
draw = random.Random(5)
nodes = [a_node(f"node-{draw.random()}", draw.choice([2, 4, 8])) for _ in range(12)]
world = World({policy!r}, nodes, **{settings!r})
told = []
for number in range(1, 120):
    gpus = draw.choice([1, 1, 2, 4, 8, 16])
    request = Request(gpus=gpus, sizes=draw.choice([(), (gpus, 2 * gpus), (gpus, gpus + 1)]))
    world.submit(a_job(number, request=request, rank_base=draw.randrange(2),
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


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
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
    ],
)
def test_plans_do_not_depend_on_the_hash_seed(policy: str, settings: dict[str, str]) -> None:
    script = STORY.replace("{policy!r}", repr(policy)).replace("{settings!r}", repr(settings))
    outputs = set()
    for seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(TESTS)}
        run = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert "Start(" in outputs.pop()
