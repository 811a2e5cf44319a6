"""Messages of the wire to the agent's values and back."""

from dataclasses import replace

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_pb2, resource_pb2
from dlq_common.text.wire import from_duration, to_duration
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.host import HostFacts
from dlq_nodeagent.line.wire import BadMessage, decode, encode, node_facts
from dlq_nodeagent.model.gpus import GpuHealth, GpuSymptom
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import (
    CheckpointFact,
    Command,
    CommandResult,
    Fence,
    Heartbeat,
    Hello,
    Launch,
    Phase,
    ProfileAck,
    ProfileEvidence,
    ProfileFound,
    ProfileOrder,
    RankProgress,
    RankReport,
    ReportAck,
    Stop,
    Verdict,
    Welcome,
)
from support.agent_bench import a_launch
from support.stub_master import launch_command, stop_command

HOST = HostFacts(hostname="n1", boot_id="b", cpu_count=8, memory_bytes=2**34, agent_version="0.1.0")
FACTS = node_facts(
    HOST,
    FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices(),
    address="10.0.0.1",
    root_jobs=True,
)
REPORT = RankReport(
    sequence=12,
    key=RankKey("17", 2, 1),
    fence=Fence(7, 2),
    phase=Phase.EXITED,
    exit_code=0,
    ended_by="exited",
    noticed="stop",
    checkpoint=CheckpointFact(path="/c", step=5, age_s=1.5, evidence="marker", after_notice=True),
    done=True,
    run_s=10.0,
    save_s=2.0,
    age_s=0.5,
)


def test_a_hello_carries_the_machine_and_all_ranks() -> None:
    hello = encode(Hello(highest_epoch=7, ranks=(REPORT,)), FACTS).hello
    assert hello.facts.virtual_devices
    assert hello.facts.root_jobs
    assert [gpu.index for gpu in hello.facts.gpus] == [0, 1]
    assert hello.facts.address == "10.0.0.1"
    assert hello.ranks[0].job_id == "17"
    assert (hello.ranks[0].fence.epoch, hello.ranks[0].fence.attempt) == (7, 2)


def test_an_exit_code_of_zero_is_told_and_no_code_is_not() -> None:
    said = encode(REPORT, FACTS).report
    assert said.HasField("exit_code")
    assert said.checkpoint.after_notice
    assert (said.noticed, said.unnoticed) == ("stop", False)
    assert encode(replace(REPORT, noticed="", unnoticed=True), FACTS).report.unnoticed
    assert from_duration(said.save_duration) == 2.0
    killed = encode(replace(REPORT, exit_code=None, signal=9, checkpoint=None), FACTS).report
    assert not killed.HasField("exit_code")
    assert not killed.HasField("checkpoint")
    assert killed.signal == 9


def test_words_that_hold_any_bytes_can_be_sent() -> None:
    hostile = "/data/\udcff\udcfe: " + "x" * 5000
    message = encode(replace(REPORT, error=hostile), FACTS)
    assert wire.SessionRequest.FromString(message.SerializeToString()).report.error.startswith(
        "/data/??"
    )
    assert len(message.report.error) <= 1000


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_a_word_on_the_wire(phase: Phase) -> None:
    assert encode(replace(REPORT, phase=phase), FACTS).report.phase != 0


def test_progress_that_a_job_did_not_tell_is_left_out() -> None:
    silent = RankProgress(
        key=REPORT.key,
        fence=REPORT.fence,
        step=None,
        total=None,
        loss=None,
        age_s=None,
    )
    beat = encode(Heartbeat(sequence=3, progress=(silent,)), FACTS).heartbeat
    assert not beat.progress[0].HasField("step")
    assert not beat.progress[0].HasField("loss")
    assert not beat.progress[0].HasField("age_duration")
    assert encode(CommandResult(4, "stale_epoch"), FACTS).command_result.refusal == "stale_epoch"


def test_a_launch_is_read_whole() -> None:
    message = launch_command(17, "python", "t.py", attempt=2, environment={"A": "b"})
    message.spec.resources.CopyFrom(
        resource_pb2.ResourceRequest(cpu_limit=2.5, memory_limit_bytes=2**30)
    )
    message.spec.preempt.signal = "USR1"
    message.spec.preempt.signal_to = "ranks"
    message.spec.checkpoint.CopyFrom(
        job_pb2.CheckpointSpec(marker="*.ckpt", settle_duration=to_duration(3))
    )
    message.time_left_duration.CopyFrom(to_duration(60))
    message.uid, message.gid = 1000, 1001
    message.spec.soft_limits["STACK"] = 2**64 - 1
    message.spec.umask = 0
    message.groups.extend([4, 5])
    command = decode(
        wire.SessionResponse(command=wire.Command(sequence=1, epoch=7, launch=message))
    )
    assert isinstance(command, Command)
    launch = command.order
    assert isinstance(launch, Launch)
    assert launch.key == RankKey("17", 2, 0)
    assert launch.fence == Fence(1, 2)
    assert launch.command == ("python", "t.py")
    assert launch.environment == {"A": "b"}
    assert (launch.soft_limits, launch.fields) == ({"STACK": 2**64 - 1}, {"umask": 0})
    assert (launch.uid, launch.gid, launch.groups) == (1000, 1001, (4, 5))
    assert (launch.cpu_limit, launch.memory_limit_bytes) == (2.5, 2**30)
    assert (launch.preempt_signal, launch.checkpoint_marker, launch.settle_s) == (
        "USR1",
        "*.ckpt",
        3.0,
    )
    assert launch.signal_to == "ranks"
    assert launch.time_left_s == 60.0


def test_limits_that_are_not_set_are_none() -> None:
    welcome = decode(wire.SessionResponse(welcome=_welcome(launch_command(1, "true"))))
    assert isinstance(welcome, Welcome)
    (launch,) = welcome.wanted
    assert (launch.cpu_limit, launch.memory_limit_bytes, launch.time_left_s) == (None, None, None)


def test_a_stop_is_read() -> None:
    command = decode(
        wire.SessionResponse(command=wire.Command(stop=stop_command(5, grace_s=9, cause="pause")))
    )
    assert isinstance(command, Command)
    assert command.order == Stop(
        key=RankKey("5", 1, 0), fence=Fence(1, 1), cause="pause", grace_s=9.0
    )


@pytest.mark.parametrize("job_id", ["", "../../etc", "1.2", "01", "-1", "1\n", "٣"])
def test_a_job_id_that_is_no_number_never_reaches_a_path(job_id: str) -> None:
    message = launch_command(1, "true")
    message.job_id = job_id
    with pytest.raises(BadMessage):
        decode(wire.SessionResponse(command=wire.Command(launch=message)))


def test_a_welcome_without_a_heartbeat_is_refused() -> None:
    welcome = _welcome()
    welcome.heartbeat_duration.CopyFrom(to_duration(0))
    with pytest.raises(BadMessage):
        decode(wire.SessionResponse(welcome=welcome))


def test_what_a_later_master_says_is_passed_over() -> None:
    assert decode(wire.SessionResponse()) is None
    assert decode(wire.SessionResponse(command=wire.Command(sequence=1, epoch=1))) is None


def test_an_acknowledgement_is_read() -> None:
    assert decode(wire.SessionResponse(report_ack=wire.ReportAck(sequence=9))) == ReportAck(9)
    assert a_launch().fence == Fence(7, 1)


def _welcome(*wanted: wire.LaunchCommand) -> wire.Welcome:
    return wire.Welcome(
        epoch=1,
        heartbeat_duration=to_duration(5),
        ttl_duration=to_duration(20),
        reconnect_jitter_duration=to_duration(15),
        wanted=wanted,
        features=["steps"],
    )


def test_a_heartbeat_tells_how_the_gpus_are_and_leaves_out_what_is_not_known() -> None:
    told = GpuHealth(
        index=1,
        symptoms=(GpuSymptom("xid_79", "off the bus", 2.5),),
        temperature_celsius=61,
    )
    beat = Heartbeat(sequence=1, progress=(), health=(told,))
    sent = encode(beat, wire.NodeFacts()).heartbeat
    (gpu,) = sent.health.gpus
    assert (gpu.index, gpu.temperature_celsius) == (1, 61)
    assert not gpu.HasField("utilization_percent")
    (symptom,) = gpu.symptoms
    assert (symptom.code, symptom.detail, symptom.age_duration.nanos) == (
        "xid_79",
        "off the bus",
        500_000_000,
    )
    assert not encode(Heartbeat(sequence=2, progress=()), wire.NodeFacts()).heartbeat.HasField(
        "health"
    )


FOUND = ProfileFound(
    ended_s=1e9,
    window_s=60.5,
    gpu_type="H100-80GB",
    gpu_count=2,
    node_count=3,
    traffic=Verdict("address-recurrence", "checked"),
    sizes=Verdict("none", "unknown", "self-check"),
    pattern="all-reduce",
    process_count=2,
    rank_count=6,
    iteration_count=9,
    period_s=0.25,
    jitter=0.0,
    bytes_per_iteration=1e9,
    largest_low_bytes=0.0,
    largest_high_bytes=5e8,
    skew_low=0.0,
    skew_high=0.5,
    record_count=1000,
    lost_count=3,
    unseen=("io_uring",),
    limits=("plugin_taken",),
    processes='[{"comm":"ü"}]',
)


def test_an_evidence_says_what_is_known_and_leaves_out_what_is_not() -> None:
    evidence = ProfileEvidence(key=REPORT.key, fence=REPORT.fence, age_s=2.5, found=FOUND)
    said = wire.SessionRequest.FromString(encode(evidence, FACTS).SerializeToString())
    told = said.profile_evidence
    assert (told.job_id, told.fence.epoch, told.fence.attempt, told.node_rank) == ("17", 7, 2, 1)
    assert (from_duration(told.age_duration), from_duration(told.window_duration)) == (2.5, 60.5)
    assert (told.gpu_type, told.gpu_count, told.node_count, told.rank_count) == (
        "H100-80GB",
        2,
        3,
        6,
    )
    assert (told.traffic.confidence, told.traffic.reason) == ("checked", "")
    assert (told.sizes.confidence, told.sizes.reason) == ("unknown", "self-check")
    assert from_duration(told.period_duration) == 0.25
    assert (told.bytes_per_iteration, told.skew_high) == (1e9, 0.5)
    assert (told.largest_tensor_low_bytes, told.largest_tensor_high_bytes) == (0.0, 5e8)
    for known in ("jitter", "skew_low", "largest_tensor_low_bytes"):
        assert told.HasField(known), known
    for unknown in ("model_bytes", "server_skew", "active_fraction", "self_check_error"):
        assert not told.HasField(unknown), unknown
    assert (told.record_count, told.lost_count, told.iteration_count) == (1000, 3, 9)
    assert (list(told.unseen), list(told.limits)) == (["io_uring"], ["plugin_taken"])
    assert told.processes == '[{"comm":"ü"}]'.encode()
    unknown_period = replace(evidence, found=replace(FOUND, period_s=None, rank_count=None))
    told = encode(unknown_period, FACTS).profile_evidence
    assert not told.HasField("period_duration")
    assert not told.HasField("rank_count")


def test_an_order_for_a_profile_and_its_acknowledgement_are_read() -> None:
    order = launch_command(17, "/bin/true")
    message = wire.SessionResponse(command=wire.Command(sequence=1, epoch=1, launch=order))
    command = decode(message)
    assert isinstance(command, Command)
    assert isinstance(command.order, Launch)
    assert command.order.profile is None
    message.command.launch.profile.window_duration.CopyFrom(to_duration(90.0))
    command = decode(message)
    assert isinstance(command, Command)
    assert isinstance(command.order, Launch)
    assert command.order.profile == ProfileOrder(90.0)
    ack = wire.ProfileAck(job_id="17", node_rank=1)
    ack.fence.epoch, ack.fence.attempt = 7, 2
    read = decode(wire.SessionResponse(profile_ack=ack))
    assert read == ProfileAck(REPORT.key, REPORT.fence)


@pytest.mark.parametrize(("resize", "live"), [("live", True), ("restart", False), ("", False)])
def test_a_launch_says_whether_nodes_come_and_go_while_it_runs(resize: str, live: bool) -> None:
    message = launch_command(7, "torchrun")
    message.spec.elastic.gpu_counts.extend([2, 4])
    message.spec.elastic.resize = resize
    told = decode(wire.SessionResponse(command=wire.Command(sequence=1, epoch=1, launch=message)))
    assert isinstance(told, Command)
    assert isinstance(told.order, Launch)
    assert (told.order.live, told.order.sizes) == (live, (2, 4))


def test_an_agent_says_that_it_knows_how_nodes_come_and_go() -> None:
    assert list(FACTS.features) == ["live-resize"]
