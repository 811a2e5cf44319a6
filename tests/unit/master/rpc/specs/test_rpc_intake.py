"""From messages to the core: what agents and users say is checked before it is believed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from dlq.v1 import agent_service_pb2 as agent
from dlq.v1 import job_service_pb2 as jobs
from dlq_common.errors import InvalidRequest
from dlq_master.control.stimuli import Caller, ReportedPhase
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import ExitZeroInGrace, RestartLimits
from dlq_master.rpc.reports import agent_intake
from dlq_master.rpc.specs import intake

ALICE = Caller("alice", "user")


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "01", "1.2", "1 ", " 1", "1\n", "²", "٣", "9" * 20, str(2**63), "x"]
)
def test_only_decimal_numbers_are_job_ids(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        intake.job_id_of(text)
    assert caught.value.field == "job_id"


def test_a_job_id_is_its_number() -> None:
    assert intake.job_id_of("17") == 17
    assert intake.job_id_of(str(2**62)) == 2**62


def _submission() -> jobs.SubmitJobRequest:
    request = jobs.SubmitJobRequest(request_id="r1")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 8
    return request


def test_a_submission_becomes_what_the_scheduler_needs() -> None:
    request = _submission()
    request.spec.resources.node_count = 2
    request.spec.resources.cpu_limit = 1.5
    request.spec.preempt.requeue_exit_codes.append(75)
    request.spec.preempt.exit_zero_completes = True
    request.spec.preempt.grace_duration.seconds = 900
    request.spec.time_limit_duration.seconds = 60
    stimulus = intake.submit_stimulus(request, ALICE)
    assert stimulus.caller == ALICE
    assert (stimulus.request.gpus, stimulus.request.nodes) == (8, 2)
    assert stimulus.request.cpus_per_node == 2
    assert stimulus.rules.requeue_exit_codes == {75, 99}
    assert stimulus.rules.exit0_in_grace is ExitZeroInGrace.COMPLETED
    assert stimulus.grace_s == 900.0
    assert stimulus.time_limit_s == 60.0


def test_a_spec_says_that_its_program_saves_by_naming_anything_of_it() -> None:
    assert not intake.submit_stimulus(_submission(), ALICE).rules.saves
    for part, name, value in (
        ("checkpoint", "directory", "/ckpt"),
        ("checkpoint", "save_signal", "USR1"),
        ("preempt", "signal", "USR2"),
        ("preempt", "signal_to", "ranks"),
    ):
        request = _submission()
        setattr(getattr(request.spec, part), name, value)
        assert intake.submit_stimulus(request, ALICE).rules.saves
    request = _submission()
    request.spec.preempt.grace_duration.seconds = 60
    assert intake.submit_stimulus(request, ALICE).rules.saves


def test_a_checkpoint_to_begin_from_needs_a_directory_and_no_marker() -> None:
    request = _submission()
    request.spec.checkpoint.resume_from = "/ckpt/17/1/step-3"
    for directory, marker in (("", ""), ("/ckpt", "*/done")):
        request.spec.checkpoint.directory, request.spec.checkpoint.marker = directory, marker
        with pytest.raises(InvalidRequest):
            intake.submit_stimulus(request, ALICE)
    request.spec.checkpoint.ClearField("marker")
    assert intake.submit_stimulus(request, ALICE).rules.saves
    request.spec.checkpoint.resume_from = "17/1"
    with pytest.raises(InvalidRequest):
        intake.submit_stimulus(request, ALICE)


def test_a_begin_counted_from_now_does_not_make_another_submission() -> None:
    first, again = _submission(), _submission()
    first.spec.begin_time.seconds = 1_900_000_000
    again.spec.begin_time.seconds = 1_900_000_007
    stimuli = [intake.submit_stimulus(each, ALICE) for each in (first, again)]
    assert stimuli[0].digest == stimuli[1].digest
    assert [each.begin_time_s for each in stimuli] == [1_900_000_000.0, 1_900_000_007.0]


def test_the_same_submission_has_the_same_digest_and_another_one_has_not() -> None:
    first = intake.submit_stimulus(_submission(), ALICE)
    again = intake.submit_stimulus(_submission(), ALICE)
    other = _submission()
    other.spec.environment["A"] = "1"
    assert first.digest == again.digest
    assert first.digest != intake.submit_stimulus(other, ALICE).digest


def _facts() -> agent.NodeFacts:
    facts = agent.NodeFacts(hostname="gpu01", boot_id="b-1", cpu_count=64, address="10.0.0.1")
    for index in (1, 0):
        facts.gpus.add(index=index, gpu_type="h100-80gb", uuid=f"GPU-{index}", memory_bytes=80)
    return facts


def test_the_runtimes_of_a_node_are_words_and_few() -> None:
    facts = _facts()
    facts.runtimes.extend(["podman", "podman"])
    assert agent_intake.facts_of(facts).runtimes == frozenset({"podman"})
    assert not agent_intake.facts_of(facts).resizes_live, "an agent that says nothing of it"
    facts.features.extend(["live-resize", "of-tomorrow"])
    assert agent_intake.facts_of(facts).resizes_live
    for hostile in ("pod man", "x" * 500, ""):
        facts.runtimes[0] = hostile
        with pytest.raises(InvalidRequest, match="runtime"):
            agent_intake.facts_of(facts)
    del facts.runtimes[:]
    facts.runtimes.extend(["podman"] * 17)
    with pytest.raises(InvalidRequest, match="at most 16"):
        agent_intake.facts_of(facts)


def test_the_facts_of_a_node_come_with_its_gpus_in_order() -> None:
    facts = agent_intake.facts_of(_facts())
    assert [gpu.index for gpu in facts.gpus] == [0, 1]
    assert facts.boot_id == "b-1"


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.ClearField("boot_id"),
        lambda f: setattr(f, "boot_id", "a\nb"),
        lambda f: setattr(f.gpus[0], "index", 0),
        lambda f: setattr(f.gpus[0], "index", -1),
        lambda f: setattr(f.gpus[0], "index", 100_000),
        lambda f: setattr(f.gpus[0], "gpu_type", "$(reboot)"),
        lambda f: setattr(f, "address", "10.0.0.1; reboot"),
        lambda f: setattr(f, "hostname", "x" * 1000),
        lambda f: setattr(f, "cpu_count", -1),
    ],
)
def test_facts_that_make_no_sense_are_refused(change: Callable[[Message], object]) -> None:
    facts = _facts()
    change(facts)
    with pytest.raises(InvalidRequest):
        agent_intake.facts_of(facts)


def _report() -> agent.RankReport:
    report = agent.RankReport(
        sequence=5, job_id="17", node_rank=1, phase=agent.RANK_PHASE_EXITED, exit_code=0
    )
    report.fence.epoch, report.fence.attempt = 3, 2
    report.age_duration.seconds = -4
    report.checkpoint.path = "/data/17/2/step-9"
    return report


def test_a_report_keeps_its_fence_and_its_age_is_never_negative() -> None:
    report = agent_intake.report_of(_report())
    assert (report.key, report.epoch) == (AttemptKey(JobId(17), 2), 3)
    assert report.phase is ReportedPhase.EXITED
    assert report.exit_code == 0
    assert report.age_s == 0.0
    assert report.checkpoint is not None


def test_an_exit_code_that_is_not_there_is_not_zero() -> None:
    report = _report()
    report.ClearField("exit_code")
    assert agent_intake.report_of(report).exit_code is None


@pytest.mark.parametrize(
    "change",
    [
        lambda r: setattr(r, "job_id", "../1"),
        lambda r: setattr(r, "node_rank", -1),
        lambda r: setattr(r, "phase", 77),
        lambda r: setattr(r, "phase", 0),
        lambda r: setattr(r.fence, "attempt", 0),
        lambda r: setattr(r.checkpoint, "path", "relative"),
        lambda r: setattr(r.checkpoint, "path", "/a\n/b"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(change: Callable[[Message], object]) -> None:
    report = _report()
    change(report)
    with pytest.raises(InvalidRequest):
        agent_intake.report_of(report)


def test_words_of_an_agent_lose_their_control_characters() -> None:
    report = _report()
    report.error = "bad\x1b[31m" + "x" * 10_000
    read = agent_intake.report_of(report)
    assert read.error.isprintable()
    assert len(read.error) <= intake.LONGEST_WORDS


@pytest.mark.parametrize(
    ("compat", "scope", "each"),
    [("", "", False), ("slurm", "", True), ("slurm", "job", False), ("", "attempt", True)],
)
def test_a_limit_is_each_attempts_as_the_spec_says_or_as_in_slurm(
    compat: str, scope: str, each: bool
) -> None:
    request = _submission()
    request.spec.compat, request.spec.time_limit_scope = compat, scope
    stimulus = intake.submit_stimulus(request, ALICE)
    assert stimulus.rules.limit_each is each
    assert stimulus.ends_as_slurm is (compat == "slurm")


def test_an_unknown_scope_of_a_limit_is_refused_by_name() -> None:
    request = _submission()
    request.spec.time_limit_scope = "week"
    with pytest.raises(InvalidRequest, match="time_limit_scope"):
        intake.submit_stimulus(request, ALICE)


@pytest.mark.parametrize(
    ("word", "older", "rule"),
    [
        ("", False, ExitZeroInGrace.EVIDENCE),
        ("", True, ExitZeroInGrace.COMPLETED),
        ("requeued", True, ExitZeroInGrace.REQUEUE),
        ("completed", False, ExitZeroInGrace.COMPLETED),
    ],
)
def test_the_meaning_of_exit_zero_in_a_stop_is_what_the_spec_declares(
    word: str, older: bool, rule: ExitZeroInGrace
) -> None:
    request = _submission()
    request.spec.on_exit0_while_stopping = word
    request.spec.preempt.exit_zero_completes = older
    request.spec.completion_exit_codes.append(85)
    rules = intake.submit_stimulus(request, ALICE).rules
    assert (rules.exit0_in_grace, rules.done_exit_codes) == (rule, frozenset({85}))


def test_limits_of_restarts_by_cause_are_taken_over_and_those_of_old_clients_stay() -> None:
    old = _submission()
    old.spec.retry.max_restart_count = 3
    rules = intake.submit_stimulus(old, ALICE).rules
    assert (rules.max_restarts, rules.limits) == (3, RestartLimits())
    new = _submission()
    new.spec.retry.max_restart_counts.update({"node": 5, "preemption": 0})
    rules = intake.submit_stimulus(new, ALICE).rules
    assert (rules.max_restarts, rules.limits) == (0, RestartLimits(node=5, preemption=0))


def test_a_limit_of_an_unknown_cause_is_refused() -> None:
    asked = _submission()
    asked.spec.retry.max_restart_counts["disk"] = 1
    with pytest.raises(InvalidRequest, match="'disk' is not one of error, memory, node"):
        intake.submit_stimulus(asked, ALICE)
