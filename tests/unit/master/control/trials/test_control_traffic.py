"""Which starts are recorded, what counts of what nodes tell, and who is believed to be what after
it.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_master.control.config import MasterConfig, ProfilerConfig
from dlq_master.control.stimuli import Launch, TakeEvidence
from dlq_master.control.trials.traffic import SETTLED_S
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import RunRules
from dlq_master.model.jobs.recording import Cause, Found, Recording, Told
from dlq_master.policy.sensitivity.traffic_estimates import LATE_S
from dlq_master.rpc.jobs.traffic_view import profile_of, traffic_message
from dlq_master.store.batch import Batch
from dlq_profiler.results import TrafficReason
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from support.told_traffic import MODEL, a_rank, told

LINK = ProfilerConfig(link_gbits=8.0)  # a gigabyte a second


def a_config(
    policy: str = "best-effort", profiler: ProfilerConfig = LINK, **settings: str
) -> MasterConfig:
    return replace(config_of(policy, **settings), profiler=profiler)


@pytest.fixture
def site(masters: Callable[..., Master]) -> tuple[Master, SimAgent, SimAgent]:
    """Two nodes of four GPUs under `place=skew`, joined by a known link."""
    return a_site(masters, a_config(place="skew"))


def a_site(
    masters: Callable[..., Master], config: MasterConfig
) -> tuple[Master, SimAgent, SimAgent]:
    master = masters(config)
    agents = SimAgent(master, NodeId("gpu01")), SimAgent(master, NodeId("gpu02"))
    for agent in agents:
        agent.hello()
    return master, *agents


def launches(master: Master, job_id: JobId) -> list[float | None]:
    """For how long each launch that was sent is to be recorded."""
    return [
        command.record_s
        for commands in master.wires.sent.values()
        for _, command in commands
        if isinstance(command, Launch) and command.key.job_id == job_id
    ]


def finish(master: Master, job_id: JobId, *agents: SimAgent) -> None:
    key = master.attempt(job_id).key
    for agent in agents:
        agent.obey()
        agent.start(key)
        agent.exit(key)
    for agent in agents:
        agent.report()


def test_the_first_start_of_a_distributed_job_is_recorded_and_one_gpu_never(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, *_ = site
    wide, narrow = master.submit(2).job_id, master.submit(1).job_id

    assert launches(master, wide) == [120.0]
    assert launches(master, narrow) == [None]
    assert "profile_ordered" in master.words(wide)
    assert "profile_ordered" not in master.words(narrow)


@pytest.mark.parametrize(
    ("mode", "records", "recorded"),
    [
        ("off", True, False),
        ("asked", None, False),
        ("asked", True, True),
        ("auto", False, False),
    ],
)
def test_who_is_recorded_is_a_setting_and_a_wish(
    masters: Callable[..., Master], mode: str, records: bool | None, recorded: bool
) -> None:
    master, *_ = a_site(masters, a_config(profiler=ProfilerConfig(mode=mode)))
    job_id = master.submit(2, records=records).job_id
    assert (launches(master, job_id) != [None]) is recorded


def test_one_gpu_is_recorded_if_its_user_asks(site: tuple[Master, SimAgent, SimAgent]) -> None:
    master, *_ = site
    assert launches(master, master.submit(1, records=True).job_id) == [120.0]


def test_what_a_start_told_speaks_for_its_job_and_the_next_of_its_family(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, *_ = site
    job_id = master.submit(2, family="vgg").job_id
    assert master.job(job_id).profile is None
    master.ask(told(AttemptKey(job_id, 1), "gpu01"))

    profile = master.job(job_id).profile
    assert profile is not None
    assert profile.skew == pytest.approx(0.99)  # one bucket: the tensor is at most all of it
    assert profile.rho == pytest.approx(MODEL / 1e9 / 0.5)
    assert master.submit(2, family="vgg").profile == profile
    assert master.submit(2, family="resnet").profile is None
    again = master.submit(2, family="vgg")
    assert launches(master, again.job_id) == [None], "its family is known"
    found = [event for event in master.events(job_id) if event.kind == "profile_found"]
    assert [event.data["rho"] for event in found] == [profile.rho]


def test_another_users_jobs_are_no_family(site: tuple[Master, SimAgent, SimAgent]) -> None:
    master, *_ = site
    job_id = master.submit(2, family="vgg").job_id
    master.ask(told(AttemptKey(job_id, 1), "gpu01"))
    assert master.submit(2, family="vgg", caller=ROOT).profile is None


def test_evidence_that_comes_twice_changes_nothing(site: tuple[Master, SimAgent, SimAgent]) -> None:
    master, *_ = site
    job_id = master.submit(2).job_id
    said = told(AttemptKey(job_id, 1), "gpu01")
    master.ask(said)
    commits, words = master.store.commits, master.words(job_id)
    other = told(AttemptKey(job_id, 1), "gpu01", processes=[a_rank(0, period_s=9.0)])
    master.ask(said)
    master.ask(other)

    assert (master.store.commits, master.words(job_id)) == (commits, words)
    assert master.turn(said, said) == [None, None], "nor twice in one turn"
    recordings, evidence = master.store.recordings(job_id), master.store.evidence(said.evidence.key)
    master.restart()  # its acknowledgement was lost with the master
    master.ask(said)
    assert master.store.recordings(job_id) == recordings
    assert master.store.evidence(said.evidence.key) == evidence


def test_evidence_counts_with_the_fence_of_its_order_only(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, *_ = site
    job_id = master.submit(2).job_id
    key = AttemptKey(job_id, 1)
    wrong: list[TakeEvidence] = [
        told(key, "gpu01", epoch=7),
        told(key, "gpu02"),
        told(key, "gpu01", rank=1),
        told(AttemptKey(job_id, 2), "gpu01"),
        told(AttemptKey(JobId(99), 1), "gpu01"),
    ]
    for said in wrong:
        master.ask(said)

    assert master.job(job_id).profile is None
    assert master.store.evidence(key) == ()
    assert master.words(job_id).count("profile_refused") == 4


def test_all_nodes_of_a_gang_are_waited_for_and_merged(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, *_ = site
    job_id = master.submit(4, nodes=2).job_id
    key = AttemptKey(job_id, 1)
    ranks = [a_rank(rank, ranks=4) for rank in range(4)]
    master.ask(told(key, "gpu01", 0, processes=ranks[:2]))
    assert master.job(job_id).profile is None
    master.restart()
    master.ask(told(key, "gpu02", 1, processes=ranks[2:]))

    profile = master.job(job_id).profile
    assert profile is not None
    assert profile.model_bytes == MODEL
    assert master.store.recordings(job_id)[0].found is not None
    (recording,) = master.store.recordings(job_id)
    assert recording.spread, "four GPUs fit on one node"


def test_a_node_that_saw_nothing_leaves_the_job_unknown(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, *_ = site
    job_id = master.submit(4, nodes=2).job_id
    key = AttemptKey(job_id, 1)
    master.turn(told(key, "gpu01", 0), told(key, "gpu02", 1, reason=TrafficReason.NOTHING_RECORDED))

    assert master.job(job_id).profile is None
    unknown = [event for event in master.events(job_id) if event.kind == "profile_unknown"]
    assert [event.cause for event in unknown] == ["nothing-recorded"]


def test_evidence_that_comes_after_the_end_still_teaches(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, _ = site
    job_id = master.submit(2, family="vgg").job_id
    finish(master, job_id, first)
    assert master.job(job_id).ended
    master.restart()
    first.hello()
    master.ask(told(AttemptKey(job_id, 1), "gpu01"))

    assert master.job(job_id).profile is None, "what has ended does not change"
    assert master.submit(2, family="vgg").profile is not None


def test_beliefs_survive_a_restart_and_follow_the_link_that_is_configured(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, second = site
    job_id = master.submit(2, family="vgg").job_id
    master.ask(told(AttemptKey(job_id, 1), "gpu01"))
    before = master.job(job_id).profile
    master.restart()
    assert master.job(job_id).profile == before
    first.hello()
    second.hello()
    assert master.submit(2, family="vgg").profile == before


def test_a_silent_family_is_tried_twice_and_then_left_alone(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, _ = site
    ordered = []
    for _ in range(4):
        job_id = master.submit(2, family="quiet").job_id
        ordered.append(launches(master, job_id) != [None])
        if ordered[-1]:
            master.ask(told(AttemptKey(job_id, 1), "gpu01", reason=TrafficReason.NOTHING_RECORDED))
        finish(master, job_id, first)
    assert ordered == [True, True, False, False]


def test_starts_that_fail_at_once_do_not_make_a_family_silent(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    """A script with a mistake in it, then the mended one: same command, same family."""
    master, first, _ = site
    for _ in range(3):
        job_id = master.submit(2, family="new").job_id
        assert launches(master, job_id) == [120.0]
        early = told(
            AttemptKey(job_id, 1), "gpu01", reason=TrafficReason.NOTHING_RECORDED, window_s=2.0
        )
        master.ask(early)
        finish(master, job_id, first)
        (recording,) = master.store.recordings(job_id)
        assert recording.cut_short
    mended = master.submit(2, family="new").job_id
    master.ask(told(AttemptKey(mended, 1), "gpu01"))
    assert master.job(mended).profile is not None


def test_a_node_that_never_tells_is_not_waited_for_for_ever_and_is_heard_all_the_same(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, second = site
    job_id = master.submit(4, nodes=2, family="vgg").job_id
    key, epoch = AttemptKey(job_id, 1), master.state.epoch
    ranks = [a_rank(rank, ranks=4) for rank in range(4)]
    master.ask(told(key, "gpu01", 0, processes=ranks[:2]))
    finish(master, job_id, first, second)
    due_s = 120.0 + LATE_S
    master.tick(due_s - 1.0)
    assert "profile_unknown" not in master.words(job_id)
    master.restart()
    master.tick(2.0)
    assert "profile_unknown" not in master.words(job_id), "agents may have kept it for this master"
    master.tick(SETTLED_S)

    (recording,) = master.store.recordings(job_id)
    assert recording.found is not None
    assert recording.found.traffic.reason == "not-told"
    start = traffic_message(master.job(job_id), master.loop.published).starts[0]
    assert (start.told_count, start.traffic.reason) == (1, "not-told")
    assert profile_of(master.job(job_id), master.loop.published) is None, "half a job is another"
    commits = master.store.commits
    master.tick(1.0)
    assert master.store.commits == commits, "once"

    master.ask(told(key, "gpu02", 1, epoch=epoch, processes=ranks[2:]))
    assert master.words(job_id)[-1] == "profile_found"
    first.hello()
    second.hello()
    assert master.submit(4, nodes=2, family="vgg").profile is not None


def test_the_next_attempt_of_a_job_is_recorded_when_the_last_ended_too_soon(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    """It starts before the node has told what little it recorded."""
    master, first, _ = site
    job_id = master.submit(2, rules=RunRules(max_restarts=1)).job_id
    first.obey()
    first.start(master.attempt(job_id).key)
    first.exit(master.attempt(job_id).key, code=1)
    first.report()
    assert launches(master, job_id) == [120.0, 120.0]
    early = told(
        AttemptKey(job_id, 1), "gpu01", reason=TrafficReason.TOO_FEW_ITERATIONS, window_s=3.0
    )
    master.ask(early)
    master.ask(told(AttemptKey(job_id, 2), "gpu01"))
    assert master.job(job_id).profile is not None


def test_a_start_on_another_number_of_nodes_is_recorded_and_measures_the_slowdown(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, second = site
    together = master.submit(2, family="vgg").job_id
    master.ask(told(AttemptKey(together, 1), "gpu01", processes=[a_rank(0), a_rank(1)]))
    finish(master, together, first)
    spread = master.submit(2, nodes=2, family="vgg").job_id
    key = AttemptKey(spread, 1)
    slow = [a_rank(rank, period_s=1.5) for rank in range(2)]
    (recording,) = master.store.recordings(spread)
    assert (recording.cause, recording.spread) == (Cause.PLACEMENT, True)
    master.turn(
        told(key, "gpu01", 0, processes=slow[:1]), told(key, "gpu02", 1, processes=slow[1:])
    )
    finish(master, spread, first, second)

    (run,) = master.state.cluster.slowdowns.learned
    assert run.spread
    assert run.slowdown == pytest.approx(3.0)
    assert run.profile.rho == pytest.approx(0.2), "foretold from the start on one node"
    later = master.submit(2, family="vgg")
    assert later.profile is not None
    assert later.profile.slowdown == pytest.approx(3.0)
    assert launches(master, later.job_id) == [None], "both are known"
    master.restart()
    assert master.state.cluster.slowdowns.learned == (run,)


def test_a_launch_says_so_again_to_an_agent_that_comes_back(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, _ = site
    job_id = master.submit(2).job_id
    first.cut()
    master.restart()
    (launch,) = first.hello().launches
    assert (launch.key.job_id, launch.record_s) == (job_id, 120.0)


def test_evidence_of_a_job_that_has_left_memory_is_taken(
    masters: Callable[..., Master],
) -> None:
    config = a_config()
    forgetful = replace(config, retention=replace(config.retention, ended_most=0))
    master, first, _ = a_site(masters, forgetful)
    job_id = master.submit(2, family="vgg").job_id
    finish(master, job_id, first)
    master.restart()
    first.hello()
    assert job_id not in master.state.cluster.jobs
    master.ask(told(AttemptKey(job_id, 1), "gpu01"))
    assert master.submit(2, family="vgg").profile is not None


def a_pair(number: int) -> list[Recording]:
    """A family that ran on one node and on two: every other one suffers, and has a larger
    tensor.
    """
    known, slow = Told("address-recurrence", "checked"), number % 2
    skew = 0.35 if slow else 0.1
    return [
        Recording(
            key=AttemptKey(JobId(1000 + number), 1 + spread),
            epoch=1,
            family=f"alice/f{number}",
            gpu_type="H100",
            gpus=2,
            node_ids=(NodeId("gpu01"), NodeId("gpu02"))[: 1 + spread],
            spread=bool(spread),
            cause=Cause.FIRST,
            order_time_s=float(number),
            window_s=60.0,
            found=Found(known, known, 8, 1.0 if slow and spread else 0.5, 1e8, 1e8, skew, skew),
        )
        for spread in (0, 1)
    ]


def test_packlimit_is_learned_from_what_starts_measured_and_again_after_a_restart(
    masters: Callable[..., Master],
) -> None:
    config = a_config(place="skew", packlimit="learned", predict="off")
    master, first, second = a_site(masters, config)
    past = [recording for number in range(18) for recording in a_pair(number)]
    master.store.write(Batch(recordings=past))
    master.restart()
    for agent in (first, second):
        agent.hello()
    for family in ("x", "y", "z"):
        assert packing_of(master).learned_from == 0, "too few"
        measure(master, first, second, family, 1.0)
    for _ in range(2):
        packing = packing_of(master)
        assert packing.learned_from == 21
        assert 0.1 < packing.skew_limit < 0.35
        master.restart()
        first.hello()
        second.hello()


def packing_of(master: Master) -> Packing:
    """The limits of a new plan."""
    master.submit(1, hold=True)
    packing = master.loop.published.packing()
    assert packing is not None
    return packing


def measure(
    master: Master, first: SimAgent, second: SimAgent, family: str, spread_s: float
) -> None:
    """It runs on one node, half a second an iteration, and then on two."""
    epoch = master.state.epoch
    for nodes, period_s in ((1, 0.5), (2, spread_s)):
        job_id = master.submit(2, nodes=nodes, family=family).job_id
        key, ranks = AttemptKey(job_id, 1), [a_rank(n, period_s=period_s) for n in range(2)]
        if nodes == 1:
            master.ask(told(key, "gpu01", epoch=epoch, processes=ranks))
            finish(master, job_id, first)
        else:
            master.turn(
                *(told(key, f"gpu0{n + 1}", n, epoch=epoch, processes=[ranks[n]]) for n in (0, 1))
            )
            finish(master, job_id, first, second)


def test_a_measured_slowdown_decides_where_no_link_is_known(
    masters: Callable[..., Master],
) -> None:
    master, first, second = a_site(masters, a_config(profiler=ProfilerConfig(), place="skew"))
    for family, took_s in (("slow", 1.0), ("fast", 0.51)):
        measure(master, first, second, family, took_s)
    for _ in range(2):
        master.submit(3)
    slow, fast = (master.submit(2, family=family).job_id for family in ("slow", "fast"))
    assert master.job(slow).waiting
    assert len(master.attempt(fast).lease.allocation.slots) == 2
    text = traffic_message(master.job(slow), master.loop.published).placement_reason
    assert text == "spread over nodes it took 2.00 times as long (limit 1.05)"


def test_who_would_suffer_waits_to_be_kept_together_and_who_would_not_is_spread(
    site: tuple[Master, SimAgent, SimAgent],
) -> None:
    master, first, _ = site
    for family, model in (("heavy", MODEL), ("light", MODEL // 100)):
        job_id = master.submit(2, family=family).job_id
        seen = [a_rank(rank, model=model) for rank in range(2)]
        master.ask(told(AttemptKey(job_id, 1), "gpu01", processes=seen))
        finish(master, job_id, first)
    fillers = [master.submit(3).job_id, master.submit(3).job_id]
    heavy = master.submit(2, family="heavy").job_id
    (reason,) = master.why(heavy).reasons
    light = master.submit(2, family="light").job_id

    assert [master.attempt(job).lease.allocation.width for job in fillers] == [3, 3]
    assert master.job(heavy).waiting
    assert "PACKLIMIT" in reason.detail
    assert len(master.attempt(light).lease.allocation.slots) == 2
