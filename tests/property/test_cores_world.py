"""Jobs without GPUs beside jobs with GPUs, under every policy: all of it must be sound, and neither
kind gets what the other has.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from dlq_master.model.plan import Start
from dlq_master.model.resources import CORE_TYPE, CORES_ONLY, Request
from property.test_core_world import LAS, Story, story_of
from support.builders import World, a_job, a_node


class MixedStory(Story):
    """Some nodes have GPUs alone, some cores alone, some both."""

    @initialize(
        sizes=st.lists(
            st.sampled_from([(4, 0), (4, 4), (2, 3), (0, 4), (0, 8)]), min_size=1, max_size=5
        )
    )
    def a_cluster(self, sizes: list[tuple[int, int]]) -> None:
        nodes = [a_node(f"n{i}", gpus, cores=cores) for i, (gpus, cores) in enumerate(sizes)]
        self.world = World(self.POLICY, nodes, **self.SETTINGS)  # type: ignore[arg-type]  # settings

    @rule(
        cores=st.sampled_from([1, 1, 2, 4, 8]),
        nodes=st.sampled_from([None, None, 1, 2]),
        queue=st.integers(0, 1),
        estimate_s=st.sampled_from([None, 30.0, 300.0]),
    )
    def a_submission_of_cores(
        self, cores: int, nodes: int | None, queue: int, estimate_s: float | None
    ) -> None:
        if nodes is not None and cores % nodes:
            nodes = None
        request = Request(gpus=cores, nodes=nodes, gpu_type=CORE_TYPE, core_weight=0.125)
        job = a_job(
            self.next_id,
            request=request,
            queue=f"q{queue}",
            user=f"u{queue}",
            priority_base=queue,
            duration_estimate_s=estimate_s,
        )
        self.world.submit(job)
        self.next_id += 1
        self.decided()

    def compare(self, changes: tuple[object, ...]) -> None:
        """The obvious planner knows no cores; but a job gets devices of its own kind alone."""
        for change in changes:
            if isinstance(change, Start):
                request = self.world.cluster.jobs[change.job_id].request
                for slot in change.allocation.slots:
                    kinds = bool(slot.gpu_indices), bool(slot.core_indices)
                    assert kinds == (not request.without_gpus, request.without_gpus)
                assert request.without_gpus == (request.gpu_types == CORES_ONLY)


TestFifo = story_of(MixedStory, "fifo", place="consolidate")
TestFifoCount = story_of(MixedStory, "fifo", place="count", preempt="free")
TestQuotas = story_of(MixedStory, "yarn-cs", place="consolidate", quota="q0:0.6,q1:0.4")
TestBestEffort = story_of(MixedStory, "best-effort", place="consolidate")
TestHalving = story_of(MixedStory, "best-effort", place="halving")
TestPattern = story_of(MixedStory, "best-effort", place="pattern")
TestBestEffortCount = story_of(MixedStory, "best-effort", place="count")
TestWidestFreeSpread = story_of(MixedStory, "lf", place="spread", preempt="free")
TestSmallest = story_of(MixedStory, "sf", place="consolidate")
TestShortestService = story_of(MixedStory, "srsf", place="consolidate", preempt="free")
TestTimeslice = story_of(MixedStory, "timeslice", place="consolidate")
TestThemis = story_of(MixedStory, "themis", place="spread", preempt="free", fairness="0.5")
TestDeadlines = story_of(MixedStory, "edf-preemptive", place="spread", preempt="free")
TestRewards = story_of(MixedStory, "3sigma", place="consolidate")
TestLaxity = story_of(MixedStory, "genie", place="consolidate", preempt="free")
TestAfs = story_of(MixedStory, "afs", place="consolidate")
TestGrowShrink = story_of(MixedStory, "gandiva-elastic", place="consolidate")
TestAryl = story_of(MixedStory, "aryl", place="groups")
TestGittins = story_of(MixedStory, "tiresias-gittins", place="consolidate", refresh="2", **LAS)
TestLas = story_of(MixedStory, "tiresias-las", place="consolidate", **LAS)
TestLasLocalSearch = story_of(MixedStory, "tiresias-las", place="local-search", **LAS)
TestLasSkew = story_of(MixedStory, "tiresias-las", place="skew", **LAS)
TestDlq = story_of(MixedStory, "dlq")
TestDlqOfTeams = story_of(MixedStory, "dlq", team_quota="u0:4,u1:2")
TestDlqLimits = story_of(
    MixedStory, "dlq", team_limit="u0:4,u1:2", team_jobs="u0:3", team_share="u0:3,*:1"
)
TestChronus = story_of(MixedStory, "chronus", spot="las", thresholds="50,400")
