"""A rank that takes long to be made ready: what it waits for is told; who stops it wastes
nothing.
"""

from dataclasses import replace

from dlq_nodeagent.model.errands import Preparation
from dlq_nodeagent.model.launch import ContainerPlan
from dlq_nodeagent.model.messages import Launch, Phase
from support.agent_bench import EPOCH, AgentBench, a_launch, a_preparation, a_stop

DIGEST = f"sha256:{'5' * 64}"


def never(launch: Launch) -> Preparation | None:
    return None


def test_what_preparing_waits_for_is_told_as_it_changes_and_not_once_it_runs() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = never
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    for words in ("pulling i: 1 of 3 layers", "pulling i: 1 of 3 layers", "pulled i in 9 s"):
        bench.core.preparing(launch.key, words)
        bench.settle()
    assert [report.detail for report in bench.reports(launch)] == [
        *("", "pulling i: 1 of 3 layers", "pulled i in 9 s")
    ]
    ready = a_preparation(launch)
    assert ready is not None
    bench.core.prepared(launch.key, ready)
    bench.run(1)
    bench.core.preparing(launch.key, "too late")
    last = bench.last(launch)
    assert (last.phase, last.detail) == (Phase.STARTED, "")


def test_what_was_made_ready_for_a_rank_that_was_stopped_meanwhile_is_taken_back() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = never
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    bench.order(a_stop(launch, "cancel"))
    ready = a_preparation(launch)
    assert ready is not None
    bench.core.prepared(launch.key, ready)
    bench.run(1)
    assert bench.errands.tidied == [launch.key]
    assert not bench.runs(launch)


def test_a_rank_that_is_stopped_gives_up_what_it_waits_for_at_once_and_only_once() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = never
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    assert bench.errands.abandoned == []
    bench.order(a_stop(launch, "cancel"))
    bench.order(a_stop(launch, "cancel"))
    assert bench.errands.abandoned == [launch.key]


def test_a_rank_whose_image_has_been_fetched_is_prepared_again_and_starts() -> None:
    bench = AgentBench()
    bench.connect()
    answers = [Preparation(again=True)]
    bench.prepare = lambda launch: answers.pop() if answers else a_preparation(launch)
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    assert answers == []
    assert bench.runs(launch)
    assert bench.errands.abandoned == []


def test_a_preparation_that_fails_for_a_full_disk_says_so() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = lambda launch: Preparation(error="no room for the image", no_room=True)
    full, other = a_launch(1), a_launch(2)
    bench.order(full)
    bench.run(1)
    bench.prepare = lambda launch: Preparation(error="this node has no GPU 9")
    bench.order(other)
    bench.run(1)
    assert [bench.last(it).no_room for it in (full, other)] == [True, False]


def test_which_image_a_rank_has_is_told_and_outlives_the_agent() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    ready = a_preparation(launch)
    assert ready is not None
    assert ready.plan is not None
    plan = replace(ready.plan, container=ContainerPlan(image="feed", image_digest=DIGEST))
    bench.prepare = lambda launch: replace(ready, plan=plan)
    bench.order(launch)
    bench.run(1)
    assert bench.last(launch).image_digest == DIGEST
    bench.restart()
    (told,) = bench.connect(launch, epoch=EPOCH + 1).ranks
    assert told.image_digest == DIGEST
