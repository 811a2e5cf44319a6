"""GPU types by the word that people use: `h100` for the only H100 there is."""

from dataclasses import replace

import pytest

from dlq_common.errors import InvalidRequest, Unsatisfiable
from dlq_master.control.config import GpuTypeConfig
from dlq_master.control.stimuli import OpenSession, ReleaseJob
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Gpu
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.model.resources import Request
from dlq_master.model.why import ReasonCode
from dlq_master.rpc.views.convert import node_message
from support.builders import a_job
from support.master_harness import Master, config_of


def join(master: Master, name: str, *gpu_types: str) -> None:
    """A node with one GPU of each type says hello, some time after what was before."""
    master.clock.advance(1.0)
    gpus = tuple(Gpu(index=index, gpu_type=kind) for index, kind in enumerate(gpu_types))
    facts = Registered(gpus=gpus, boot_id=f"boot-{name}", hostname=name)
    master.ask(OpenSession(node_id=NodeId(name), facts=facts, highest_epoch=0, reports=()))


def submit(master: Master, *words: str, hold: bool = False) -> Job:
    request = Request(gpus=1, gpu_type=words[0], or_gpu_types=words[1:])
    ask = replace(master.submission(1, hold=hold), request=request)
    return master.ask(ask).job  # type: ignore[no-any-return] # answered with Submitted


def type_of(master: Master, job_id: JobId) -> str | None:
    return master.job(job_id).request.gpu_type


@pytest.mark.parametrize("word", ["h100", "h100-80gb"])
def test_a_word_means_the_one_type_that_it_begins(master: Master, word: str) -> None:
    join(master, "n1", "h100-80gb", "a100-40gb")
    job = submit(master, word)
    assert job.request.gpu_type == "h100-80gb"
    assert job.live_attempt == 1


def test_the_very_type_wins_over_those_that_begin_so(master: Master) -> None:
    join(master, "n1", "mi300", "mi300-192gb")
    assert submit(master, "mi300").request.gpu_type == "mi300"


def test_a_word_ends_at_a_dash(master: Master) -> None:
    join(master, "n1", "a100-40gb")
    with pytest.raises(Unsatisfiable):
        submit(master, "a10")


def test_a_word_that_can_mean_several_is_refused_with_all_of_them(master: Master) -> None:
    join(master, "n1", "h100-80gb", "h100-94gb")
    with pytest.raises(InvalidRequest) as caught:
        submit(master, "h100")
    assert str(caught.value).startswith("h100 can mean h100-80gb or h100-94gb: name one")
    assert caught.value.field == "spec.resources.gpu_type"


def test_a_type_that_nobody_has_is_refused_with_what_there_is(master: Master) -> None:
    join(master, "n1", "h100-80gb")
    with pytest.raises(Unsatisfiable) as caught:
        submit(master, "h10-80gb")
    assert caught.value.reasons == (
        "no node has h10-80gb GPUs (there are: h100-80gb); did you mean 'h100-80gb'?",
    )


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_word_from_before_the_nodes_means_the_first_type_that_fits_it(
    master: Master, hold: bool, restart: bool
) -> None:
    job_id = submit(master, "h100", hold=hold).job_id
    assert type_of(master, job_id) == "h100"
    if restart:
        master.restart()
    join(master, "n1", "a100-40gb")
    assert type_of(master, job_id) == "h100"
    join(master, "n2", "h100-80gb")
    assert type_of(master, job_id) == "h100-80gb"
    assert "gpu_type_resolved" in master.words(job_id)
    assert (master.job(job_id).live_attempt is None) is hold
    join(master, "n3", "h100-94gb")
    assert type_of(master, job_id) == "h100-80gb"
    master.restart()
    assert type_of(master, job_id) == "h100-80gb"


def test_a_released_job_whose_type_comes_later_starts_then(master: Master) -> None:
    job_id = submit(master, "h100", hold=True).job_id
    join(master, "n1", "a100-40gb")
    master.edit(ReleaseJob, job_id)
    assert [reason.code for reason in master.why(job_id).reasons] == [ReasonCode.GPU_TYPE]
    join(master, "n2", "h100-80gb")
    assert master.attempt(job_id).lease.allocation.node_ids == ("n2",)


def test_nobody_chooses_for_a_word_that_comes_to_mean_several(master: Master) -> None:
    job_id = submit(master, "h100").job_id
    join(master, "n1", "h100-80gb", "h100-94gb")
    assert type_of(master, job_id) == "h100"
    assert [reason.code for reason in master.why(job_id).reasons] == [ReasonCode.GPU_TYPE]


def test_each_word_of_several_means_what_it_would_alone(master: Master) -> None:
    join(master, "n1", "h100-80gb")
    join(master, "n2", "a100-40gb", "a100-80gb")
    assert submit(master, "h100", "a100-80gb").request.gpu_types == ("h100-80gb", "a100-80gb")
    assert submit(master, "h100", "h100-80gb").request.gpu_types == ("h100-80gb",)
    with pytest.raises(InvalidRequest, match="or a100-40gb,a100-80gb for any one of them"):
        submit(master, "h100", "a100")


def test_a_slip_among_several_is_refused_though_the_others_would_do(master: Master) -> None:
    join(master, "n1", "h100-80gb", "a100-40gb")
    with pytest.raises(InvalidRequest) as caught:
        submit(master, "h100-80gb", "a10-40gb")
    assert str(caught.value).startswith(
        "no node has a10-40gb GPUs (there are: a100-40gb, h100-80gb); did you mean 'a100-40gb'?"
    )


def test_of_several_words_each_is_resolved_when_its_type_comes(master: Master) -> None:
    job_id = submit(master, "h100", "a100", hold=True).job_id
    join(master, "n1", "a100-40gb")
    assert master.job(job_id).request.gpu_types == ("h100", "a100-40gb")
    master.restart()
    join(master, "n2", "h100-80gb")
    assert master.job(job_id).request.gpu_types == ("h100-80gb", "a100-40gb")
    master.edit(ReleaseJob, job_id)
    assert master.attempt(job_id).lease.allocation.node_ids == ("n2",)


def test_a_declared_speed_is_that_of_attempts_placed_from_then_on_also_over_restarts() -> None:
    """An hour on the T4 is a quarter of one; another file changes that for new attempts alone."""
    config = replace(config_of("tiresias-las"), gpu_types={"t4": GpuTypeConfig(speed=0.25)})
    master = Master(config)
    join(master, "n1", "t4-16gb", "t4-16gb")
    first = submit(master, "t4").job_id
    assert master.attempt(first).speed == 0.25
    master.restart()
    assert master.attempt(first).speed == 0.25
    master.config = replace(config, gpu_types={"t4": GpuTypeConfig(speed=0.5)})
    master.restart()
    second = submit(master, "t4").job_id
    join(master, "n1", "t4-16gb", "t4-16gb")
    assert master.attempt(first).speed == 0.25
    assert master.attempt(second).speed == 0.5
    master.close()


def test_readers_see_what_is_declared_of_the_types_that_there_are() -> None:
    declared = {"t4": GpuTypeConfig(speed=0.25), "v100": GpuTypeConfig(speed=0.5)}
    master = Master(replace(config_of(), gpu_types=declared))
    join(master, "n1", "t4-16gb", "h100-80gb", "h100-80gb")
    node = master.node("n1")
    told = node_message(node, master.loop.published)
    assert dict(told.declared_gpu_speeds) == {"t4-16gb": 0.25}
    assert dict(told.measured_gpu_speeds) == {}
    for number in range(10):
        kind, run_s = (("t4-16gb", 300.0), ("h100-80gb", 100.0))[number % 2]
        ran = a_job(90, family="f", gpu_type_ran=kind, worked_s=run_s)
        master.state.cluster.profiling.learn(ran)
    measured = node_message(node, master.loop.published).measured_gpu_speeds
    assert dict(measured) == {"t4-16gb": 0.333}
    master.close()
