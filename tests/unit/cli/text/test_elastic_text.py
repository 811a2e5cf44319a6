"""What is said of elastic jobs."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.facts.job import elastic_facts
from dlq_cli.text.elastic import speeds_text


def test_speeds_are_told_of_the_sizes_that_were_measured() -> None:
    elastic = job_pb2.Elasticity(gpu_counts=[2, 4, 8])
    assert speeds_text(elastic) == ""
    elastic.speeds.add(gpu_count=4, steps_per_second=1.25, gpu_type="h100-80gb")
    assert speeds_text(elastic) == "steps/s: 1.25 on 4"
    (told,) = elastic_facts(elastic)["speeds"]
    assert told["relative_speed"] is None
    elastic.speeds[0].relative_speed = 1.0
    elastic.speeds.add(gpu_count=8, steps_per_second=2.0, relative_speed=1.6, gpu_type="h100-80gb")
    assert speeds_text(elastic) == "steps/s: 1.25 on 4 (1.00 x), 2 on 8 (1.60 x)"
