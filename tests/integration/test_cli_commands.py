"""What every command prints, as text for a pipe and as JSON, against a master of canned answers."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq.v1 import admin_service_pb2, job_pb2, node_pb2, policy_pb2, queue_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1.forecast_pb2 import TimeRange
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job, a_node, a_profile, an_attempt, an_event

pytestmark = pytest.mark.integration


def a_range(likely: int) -> TimeRange:
    """Half an hour before it and an hour behind it."""
    early, late = likely - 1800, likely + 3600
    return TimeRange(
        earliest_time=to_timestamp(EPOCH_S + early),
        likely_time=to_timestamp(EPOCH_S + likely),
        latest_time=to_timestamp(EPOCH_S + late),
    )


def a_cluster() -> FakeMaster:
    """Jobs in every kind of state, three nodes, two queues' worth of levels."""
    master = FakeMaster()
    master.policy = policy_pb2.Policy(
        policy="srtf", settings={"place": "skew"}, set_by="root", set_time=to_timestamp(EPOCH_S)
    )
    master.planner = policy_pb2.Planner(
        state="resting",
        plan_count=12,
        failure_count=2,
        start_count=3,
        dropped_change_count=4,
        last_failure="it ended",
        last_plan_duration=to_duration(0.04),
        longest_plan_duration=to_duration(0.9),
        rest_duration=to_duration(4),
    )
    master.jobs = {
        "17": a_job(
            17, "running",
            checkpoint=job_pb2.Checkpoint(
                path="/ckpt/17/1/step-900", step=900, commit_time=to_timestamp(EPOCH_S + 3000),
                attempt=1,
            ),
            progress=job_pb2.Progress(
                step=950, total_step_count=2000, loss=0.25, beat_time=to_timestamp(EPOCH_S + 3060)
            ),
            grace_duration=to_duration(75), observed_save_count=3,
            work_at_risk_duration=to_duration(60), time_limit_duration=to_duration(86400),
            virtual_devices=True, attained_gpu_seconds=29784.0,
        ),
        "18": a_job(18, name="wide", wait_code="resources", start_estimate=a_range(7200)),
        "19": a_job(
            19, "failed", end_reason="user_error", exit_code=3, attempt_count=2,
            start_time=to_timestamp(EPOCH_S + 30), end_time=to_timestamp(EPOCH_S + 90),
        ),
        "20": a_job(20, "held", hold_reason="later", held_by="alice", wait_code="held_user"),
        "21": a_job(21, "completed", exit_code=0, end_reason="completed"),
        "22": a_job(22, "pausing", stop_cause="preempt"),
        "23": a_job(23, name="evil\x1b[2J\n$(reboot)"),
    }  # fmt: skip
    ended = an_attempt(17, 1, "preempted")
    ended.stop_cause = "preempt"
    ended.end_time.CopyFrom(to_timestamp(EPOCH_S + 120))
    for rank in ended.ranks:
        rank.phase, rank.exit_code = "exited", 99
    master.attempts["17"] = [ended, an_attempt(17, 2)]
    master.specs["17"] = job_pb2.JobSpec(
        name="train-17",
        command=["--lr", "0.1"],
        script="#!/bin/bash\ntorchrun train.py\n",
        resources=master.jobs["17"].resources,
        environment={"WANDB_API_KEY": "a secret", "A": "1"},
        working_directory="/data/run",
        labels={"team": "vision"},
        time_limit_duration=to_duration(86400),
    )
    master.reasons["18"] = [
        job_pb2.WaitReason(
            code="resources", resource="gpus", need=8, have=4, blocking_job_ids=["17"],
            detail="needs 8 GPUs, 4 are free; the largest free block is 4 on lab1;"
            " job 17 holds GPUs it could use",
        ),
        job_pb2.WaitReason(
            code="behind_higher_rank", blocking_job_ids=["12", "14", "15"],
            detail="3 jobs rank before it: 12, 14, 15",
        ),
    ]  # fmt: skip
    master.reasons["20"] = [
        job_pb2.WaitReason(code="held_user", detail="held by you: later (dlq release 20)")
    ]
    master.events = [
        an_event(1, "job_submitted", 17, actor="user:alice"),
        an_event(2, "attempt_running", 17, attempt=1, node_id="gpu01", data={"gpus": "8"}),
        an_event(3, "attempt_preempted", 17, attempt=1, cause="job 12 came first"),
    ]
    master.logs = {
        ("17", 1, 0): b"first attempt\n",
        ("17", 2, 0): b"".join(b"step %d\n" % step for step in range(40)),
        ("17", 2, 1): b"rank one\nno newline",
    }
    master.nodes = {
        "gpu01": a_node("gpu01", free=0, attempts=["17.2"]),
        "gpu02": a_node("gpu02", free=0, attempts=["17.2"]),
        "gpu03": a_node("gpu03", flags=["draining"], flag_reason="fan"),
        "gpu04": a_node("gpu04", state=node_pb2.NODE_STATE_UNREACHABLE),
        "lab1": a_node("lab1", gpus=1, free=1, virtual_devices=True, root_jobs=True),
        "sick1": a_node(
            "sick1",
            gpus=3,
            free=1,
            flags=["quarantined"],
            attempts=["17.2"],
            withheld_gpu_indexes=[2],
            reasons=[
                node_pb2.NodeReason(
                    kind="quarantined",
                    words="3 different jobs failed here at once: 5.1, 7.1, 9.1",
                    actor="master",
                    since_time=to_timestamp(EPOCH_S + 40),
                ),
                node_pb2.NodeReason(
                    kind="withheld",
                    words="GPU 2: xid_48 (DBE), reset",
                    actor="node:sick1",
                    since_time=to_timestamp(EPOCH_S + 50),
                ),
            ],
            gpu_statuses=[
                node_pb2.GpuStatus(
                    index=0,
                    state="busy",
                    attempt="17.2",
                    temperature_celsius=61,
                    utilization_percent=97,
                    used_memory_bytes=40 << 30,
                ),
                node_pb2.GpuStatus(index=1, state="closed", temperature_celsius=35),
                node_pb2.GpuStatus(
                    index=2,
                    state="withheld",
                    conditions=[
                        node_pb2.GpuCondition(
                            code="xid_48",
                            action="reset",
                            detail="DBE",
                            since_time=to_timestamp(EPOCH_S + 50),
                        )
                    ],
                ),
            ],
        ),
    }
    master.queues = [
        queue_pb2.Queue(
            name="default", priority=0, policy="tiresias-las", is_default=True,
            levels=[
                queue_pb2.QueueLevel(
                    level=0, threshold_gpu_seconds=3200, waiting_job_count=2, running_job_count=1
                ),
                queue_pb2.QueueLevel(level=1, running_job_count=1),
            ],
            running_gpu_count=16, waiting_gpu_count=16, held_job_count=1,
        )
    ]  # fmt: skip
    master.estimate = wire.EstimateJobResponse(
        start=a_range(7200),
        end=a_range(20_000),
        basis="family",
        estimate_time=to_timestamp(EPOCH_S + 3600),
    )
    master.estimate.end.ClearField("latest_time")
    master.compared = wire.CompareForecastsResponse(
        estimate_time=to_timestamp(EPOCH_S + 3600),
        starts=[
            wire.ComparedStart(job_id="18", start=a_range(7200), other_start=a_range(3600)),
            wire.ComparedStart(job_id="23", other_start=a_range(9000)),
            wire.ComparedStart(job_id="24", start=a_range(9000), other_start=a_range(9000)),
        ],
    )
    master.forecast_quality = wire.GetForecastQualityResponse(
        job_count=40,
        error_median_duration=to_duration(90),
        error_p90_duration=to_duration(3700),
        late_median_duration=to_duration(-30),
        within_ratio=0.8,
        wait_median_duration=to_duration(5000),
        look_time=to_timestamp(EPOCH_S + 3600),
        world_count=7,
        cpu_duration=to_duration(0.25),
        estimate_count=3,
    )
    master.own_profile = a_profile()
    master.users = {
        "alice": admin_service_pb2.User(
            name="alice", role="user", uid=1000, gid=1000, groups=[5, 7],
            create_time=to_timestamp(EPOCH_S),
        )
    }  # fmt: skip
    return master


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = a_cluster()
    running.role = "operator"
    yield running
    running.stop()


READS = [
    "status",
    "status 17",
    "status 18",
    "status 20",
    "status 17 18",
    "status --no-header -o id,name,state,code,gpus,nodes,nodelist,time_limit,time_left,submit,exit",
    "status -o %.6i|%12j|%t|%M|%l|%D|%R",
    "status --sort state,-id -q",
    "status -t R,failed",
    "show 17",
    "show 19",
    "why 18",
    "why 17 19 20",
    "logs 17 -n 3",
    "logs 17.1",
    "logs 17 --attempt 1",
    "logs 17 --rank all -n 1",
    "events 17",
    "events",
    "wait 21",
    "nodes",
    "nodes -l",
    "nodes -R",
    "nodes lab1",
    "nodes sick1",
    "gpus",
    "gpus lab1 sick1 --no-header",
    "gpus -t withheld -t busy",
    "gpus --unhealthy",
    "top -a",
    "nodes -t up --flag draining,cordoned --type H100-80GB --search rack",
    "queues",
    "admin user list",
    "admin audit -n 1 --since 2h cancel",
    "admin policy show",
    "admin policy list",
    "admin node show gpu03 gpu04",
    "show 18",
    "estimate 18",
    "estimate --gpus 8 -D /data -- python train.py",
    "what-if --add-nodes 4x8 --drain gpu[01-02]",
    "what-if --lose gpu01 --add-job 8:3h:12h",
    "admin estimates",
    "admin profile -t 2",
]
IN_JSON = [
    "gpus sick1",
    "status",
    "show 17",
    "why 18",
    "events 17",
    "wait 21",
    "nodes",
    "queues",
    "admin user list",
    "admin audit -n 1",
    "admin policy show",
    "admin node show gpu03",
    "estimate 18",
    "what-if --policy fifo --set place=count",
    "admin estimates",
    "admin profile",
]
CHANGES = [
    "submit -J n -G 8 -D /data -- python train.py --lr 0.1",
    "submit --parsable -D /data -- true",
    "hold 18",
    "hold --admin --reason disk 18",
    "release 20",
    "pause 17",
    "resume 20",
    "requeue 18",
    "signal 17 SIGUSR1",
    "cancel -n wide",
    "update 18 name=other",
    "checkpoint --no-wait 17",
    "cancel 18 20",
    "admin token create --node gpu07 --ttl 15m",
    "admin node drain gpu01 --reason fan -y",
    "admin node undrain gpu03",
    "admin node cordon gpu01 --reason look",
    "admin node uncordon gpu01",
    "admin node accept gpu03",
    "admin node unquarantine sick1",
    "admin node clear sick1 --gpu 2",
    "admin node label gpu01 rack=r1 disk=fast",
    "admin node fence gpu04 --reason off -y",
    "admin user set alice --role operator",
    "admin policy set srtf -s place=spread --force -y",
    "admin policy reset -y",
]


@pytest.mark.parametrize("line", READS)
def test_text_of(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq(*line.split())
    assert said.code == 0, said.err
    assert f"{said.out}--- stderr\n{said.err}" == snapshot


@pytest.mark.parametrize("line", IN_JSON)
def test_json_of(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq(*line.split(), "--json")
    assert (said.code, said.err) == (0, "")
    content = json.loads(said.out)
    assert content["schema"] == "dlq.v1"
    assert json.dumps(content, indent=1) == snapshot


@pytest.mark.parametrize("line", CHANGES)
def test_text_of_a_change(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq(*line.split())
    assert said.code == 0, said.err
    assert f"{said.out}--- stderr\n{said.err}" == snapshot


def test_text_of_revocations(dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    lines = (
        "admin revoke user alice --reason stolen -y",
        "admin revoke node gpu07 -y",
        "admin revoke serial 00:5F:0C -y",
        "admin revoke list",
        "admin revoke list --json",
        "admin ca status",
        "admin ca rotate -y",
        "admin ca status --json",
        "admin ca finish -y",
    )
    said = [dlq(*line.split()) for line in lines]
    assert [one.code for one in said] == [0] * len(lines), said
    assert "\n".join(one.out for one in said) == snapshot


def test_text_of_the_masters(dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = [dlq(*line.split()) for line in ("admin leader show", "admin leader step-down")]
    assert [one.code for one in said] == [0, 0], said
    assert "\n".join(one.out for one in said) == snapshot


def test_text_of_hooks(dlq: Dlq, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file, job = tmp_path / "hooks.py", tmp_path / "train.toml"
    file.write_text("def on_submit(job, user, context): return job\n")
    job.write_text('name = "train"\ncommand = ["true"]\n')
    lines = (
        ("show",),
        ("show", "--json"),
        ("reload",),
        ("test", str(file), "--job", str(job)),
        ("test", str(file), "--last", "3", "--json"),
        ("test", str(file), "--last", "3", "--hook", "on_end"),
        ("test", str(file), "--last", "3", "--hook", "on_start", "--json"),
    )
    said = [dlq("admin", "hooks", *line) for line in lines]
    assert [one.code for one in said] == [0] * len(lines), said
    assert "\n".join(one.out for one in said) == snapshot
    assert dlq("admin", "hooks", "test", str(file)).code != 0


def test_a_hook_of_attempts_takes_no_job_and_a_master_that_knows_it(
    master: FakeMaster, dlq: Dlq, tmp_path: Path
) -> None:
    file = tmp_path / "hooks.py"
    file.write_text("def on_end(attempt): return None\n")
    tried = ("admin", "hooks", "test", str(file), "--hook", "on_end")
    assert [dlq(*tried, *more).code for more in ((), ("--last", "3", "--as", "bob"))] == [2, 2]
    assert not master.requests("TestHooks")
    master.tries_attempts = False
    said = dlq(*tried, "--last", "3")
    assert (said.code, said.out) == (2, "")
    assert "the master is of a former release, and cannot try on_end" in said.err
    assert dlq(*tried[:-2], "--last", "3").code == 0


@pytest.mark.parametrize("line", [line for line in CHANGES if "--parsable" not in line])
def test_json_of_a_change(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    head, dashes, tail = line.partition(" -- ")
    said = dlq(*head.split(), "--json", *(["--", *tail.split()] if dashes else []))
    assert said.code == 0, said.err
    assert json.dumps(json.loads(said.out), indent=1) == snapshot


@pytest.mark.parametrize("line", ["nodes", "nodes -R", "nodes lab1", "queues"])
def test_a_master_that_starts_nothing_says_why_beside_the_list(
    line: str, master: FakeMaster, dlq: Dlq
) -> None:
    why = "the master has just started and waits for its nodes"
    plain = dlq(*line.split())
    master.freeze_reason = why
    said = dlq(*line.split())
    assert (said.code, said.out) == (0, plain.out)
    assert said.err == f"{plain.err}dlq: nothing starts now: {why}\n"
    assert dlq(*line.split(), "--json").err == ""


def test_every_change_carries_its_own_request_id(master: FakeMaster, dlq: Dlq) -> None:
    for line in CHANGES:
        assert dlq(*line.split()).code == 0
    ids = [request.request_id for _, _, request in master.asked if hasattr(request, "request_id")]
    assert len(ids) >= len(CHANGES)
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_json_keeps_the_filter_and_the_order(dlq: Dlq) -> None:
    said = dlq("status", "--json", "-t", "running,failed,held", "--sort", "-id")
    assert [job["job_id"] for job in json.loads(said.out)["jobs"]] == ["20", "19", "17"]


def test_a_command_is_estimated_and_not_submitted(master: FakeMaster, dlq: Dlq) -> None:
    assert dlq("estimate", "-D", "/data", "--gpus", "8", "--", "true").code == 0
    ((method, _, request),) = [asked for asked in master.asked if "Cluster" not in asked[0]]
    assert method == "EstimateJob"
    assert (request.job_id, request.spec.resources.gpu_count) == ("", 8)


def test_no_estimate_yet_is_no_failure(master: FakeMaster, dlq: Dlq) -> None:
    master.estimate = wire.EstimateJobResponse(missing="it was killed")
    said = dlq("estimate", "18")
    assert (said.code, said.err) == (0, "")
    assert "no forecast: it was killed" in said.out
    assert json.loads(dlq("estimate", "18", "--json").out)["missing"] == "it was killed"


@pytest.mark.parametrize(
    "line",
    [
        "--add-nodes 4",
        "--add-nodes 4y8",
        "--set fifo",
        "--drain [[",
        "--lose [[",
        "--add-job 8",
        "--add-job 8:x",
    ],
)
def test_what_cannot_be_is_a_mistake(line: str, dlq: Dlq) -> None:
    assert dlq("what-if", *line.split()).code == 2


def test_who_submits_from_a_script_does_not_wait_for_an_estimate(
    master: FakeMaster, dlq: Dlq
) -> None:
    assert dlq("submit", "-D", "/data", "--", "true").code == 0
    assert "EstimateJob" not in [method for method, _, _ in master.asked]


def test_values_of_variables_are_never_shown(dlq: Dlq) -> None:
    for arguments in (["show", "17"], ["show", "17", "--json"]):
        said = dlq(*arguments)
        assert "WANDB_API_KEY" in said.out
        assert "a secret" not in said.out


def test_output_in_a_pipe_does_not_depend_on_colour_switches(
    master: FakeMaster, tmp_path: Path
) -> None:
    home = master.home(tmp_path / "home")
    plain = Dlq(home)("status").out
    assert "\x1b" not in plain
    assert Dlq(home, {"NO_COLOR": "1"})("status").out == plain
    assert Dlq(home)("--color", "never", "status").out == plain
    assert "\x1b[32m" in Dlq(home)("--color", "always", "status").out


def test_a_list_of_five_thousand_jobs_is_one_call(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs = {str(number): a_job(number) for number in range(1, 5001)}
    said = dlq("status", "--json", "-a")
    assert len(json.loads(said.out)["jobs"]) == 5000
    assert len(master.requests("ListJobs")) == 1


def test_version_tells_both_ends(dlq: Dlq) -> None:
    here = importlib.metadata.version("dlq")
    said = dlq("version").out
    assert said.splitlines() == [
        f"dlq {here}",
        "master 0.2.0, epoch 2, cluster lab",
        "you are alice (operator)",
    ]
    content = json.loads(dlq("version", "--json").out)
    assert (content["client_version"], content["cluster"]["epoch"]) == (here, 2)
    assert dlq("version", "--client").out == f"dlq {here}\n"


def test_more_than_a_page_of_jobs_is_read_to_the_end(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs = {str(number): a_job(number) for number in range(1, 5004)}
    assert dlq("status", "-q").out.splitlines()[-1] == "5003"
    assert len(master.requests("ListJobs")) == 2
