"""What goes wrong, and how it is told: exit codes, one line and a hint, nothing done twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.queues import Queues
from dlq_common.errors import NotFound, PermissionDenied, Unavailable, Unsatisfiable
from dlq_common.identity.pki import Authority
from support.cli_run import Dlq
from support.extent import spread
from support.fake_master import FakeMaster
from support.wire_jobs import a_job, a_node, an_attempt, an_event

pytestmark = pytest.mark.integration

ALL_FIELDS = ("--", "true")


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.role = "operator"
    running.jobs = {"17": a_job(17, "running"), "18": a_job(18), "19": a_job(19, name="twin")}
    running.jobs["20"] = a_job(20, name="twin")
    running.nodes = {"gpu01": a_node("gpu01")}
    yield running
    running.stop()


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("frobnicate", 2, "there is no command 'frobnicate'"),
        ("statsu", 2, "did you mean 'status'?"),
        ("status --frob", 2, "No such option"),
        ("status -o nam", 2, "did you mean 'name'?"),
        ("status -t runing", 2, "did you mean 'running'?"),
        ("status --since soon", 2, "is not a time"),
        ("status -w --json", 2, "use -w --jsonl"),
        ("submit", 2, "stdin: it is empty"),
        ("submit --", 2, "there is no command after --"),
        ("completion", 2, "Choose from: bash, zsh, fish"),
        ("submit -t -5 -- true", 2, "--time: '-5' is not"),
        ("submit -G -1 -- true", 2, "--gpus: '-1' is not a number of GPUs"),
        ("submit --cpus -3 -- true", 2, "--cpus: '-3' is not a number of cores"),
        ("submit --qos high -- true", 2, "No such option '--qos'"),
        ("submit --array 3-1 -- true", 2, "--array: 3-1 is empty"),
        ("submit --array 0-3,2 -- true", 2, "--array: an index is named twice"),
        ("submit -d 12 -- true", 2, "what should have become of job 12?"),
        ("submit -d afterok:12?after:3,after:4 -- true", 2, "do not go together"),
        ("submit -d aftrok:12 -- true", 2, "did you mean 'afterok'?"),
        ("submit -b soon -- true", 2, "--begin: 'soon' is not an instant"),
        ("cancel 12_[3-1]", 2, "3-1 is empty"),
        ("update 17", 2, "what is to be changed?"),
        ("update name=x", 2, "which job?"),
        ("update 17 nam=x", 2, "did you mean 'name'?"),
        ("update 17 time_limit=soon", 2, "time_limit: 'soon' is not a duration"),
        ("update 17 nice=1000", 2, "nice: 1000 is too large"),
        ("update 17 dependency=12", 2, "what should have become of job 12?"),
        ("update 17 begin=later", 2, "begin: 'later' is not an instant"),
        ("update 99 name=x", 3, "there is no job 99"),
        ("signal 99 USR1", 3, "there is no job 99"),
        ("requeue 99", 3, "there is no job 99"),
        ("checkpoint 99", 3, "there is no job 99"),
        ("submit --nice x -- true", 2, "'x' is not a whole number"),
        ("submit --save-signal TERM -- true", 2, "is not one of USR1, USR2, INT"),
        ("logs 12_[0-3]", 2, "are 4 jobs"),
        ("submit --gpus eight -- true", 2, "--gpus: 'eight'"),
        ("submit /nonexistent/train.sh", 2, "/nonexistent/train.sh: no such file"),
        ("submit python", 2, "to queue a command: dlq submit -- python ..."),
        ("submit --wrap x train.sh", 2, "--wrap takes the place of"),
        (
            "submit --work 0 -- true",
            2,
            "dlq: --work/--estimate: a duration of 0 is not allowed here",
        ),
        ("submit --deadline soon -- true", 2, "dlq: --deadline: 'soon' is not a deadline"),
        ("submit -t never -- true", 2, "--time: 'never' is not a duration"),
        ("wait 17 --any --all", 2, "contradict each other"),
        ("wait 17 --timeout soon", 2, "--timeout: 'soon' is not a duration"),
        ("wait 99", 3, "there is no job 99"),
        ("status 99", 3, "there is no job 99"),
        ("show 99", 3, "there is no job 99"),
        ("show 98-99", 3, "there is no job 98-99"),
        ("show nosuchname", 3, "there is no job 'nosuchname'"),
        ("show twin", 2, "2 jobs are named 'twin'"),
        ("cancel", 2, "which jobs?"),
        ("cancel 17 -n twin", 2, "not both"),
        ("cancel 98 17", 3, "job 98: there is no job 98"),
        ("cancel 20-19", 2, "is empty"),
        ("logs 18", 1, "has not started yet"),
        ("logs 17 -n x", 2, "neither a number nor `all`"),
        ("nodes gpu99", 3, "there is no node gpu99"),
        ("nodes gpu[", 2, "is not a host list"),
        ("completion tcsh", 2, "'tcsh' is not one of"),
        ("admin node fence gpu01 --reason off", 2, "there is no terminal to ask on"),
        ("admin node forget gpu01", 2, "there is no terminal to ask on"),
        ("admin user del alice", 2, "there is no terminal to ask on"),
        ("admin user set bob", 2, "bob is new: name --uid and --gid"),
        ("admin token create --ttl soon", 2, "--ttl: 'soon' is not a duration"),
    ],
)
def test_a_mistake_is_told_in_one_line_on_stderr(
    line: str, code: int, words: str, dlq: Dlq
) -> None:
    said = dlq(*line.split())
    assert said.code == code
    assert words in said.err
    assert all(part.startswith(("dlq: ", "  ")) for part in said.err.splitlines())


@pytest.mark.parametrize("command", [[""], ["  ", "x"]])
def test_a_command_without_a_word_is_said_to_be_empty(command: list[str], dlq: Dlq) -> None:
    said = dlq("submit", "--", *command)
    assert (said.code, said.out) == (2, "")
    assert "the command after -- is empty" in said.err


@pytest.mark.parametrize(
    "line", spread(["status", "status --json", "logs 17", "events 17", "--help"], 2)
)
def test_output_that_cannot_be_written_is_one_line_and_no_story(
    line: str, master: FakeMaster, tmp_path: Path
) -> None:
    master.attempts["17"] = [an_attempt(17, 1)]
    master.logs[("17", 1, 0)] = b"x" * 100
    master.events = [an_event(1, "attempt_running", 17, attempt=1)]
    home = master.home(tmp_path / "home")
    program = [sys.executable, "-m", "dlq_cli.main", "--home", str(home), *line.split()]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "dlq: the output: no space left on device\n")


@pytest.mark.parametrize("verb", ["drain gpu01 --reason x", "fence gpu01 --reason x"])
def test_who_may_not_do_it_is_not_shown_whom_it_would_hit(
    verb: str, master: FakeMaster, dlq: Dlq
) -> None:
    master.role = "user"
    master.nodes["gpu01"] = a_node("gpu01", attempts=["17.1"])
    said = dlq("admin", "node", *verb.split())
    assert said.code == 4
    assert "17.1" not in said.err
    assert "this is for operators, and alice is user" in said.err
    assert master.requests("SetNodeFlags") + master.requests("FenceNode") == []


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", 2),
        (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", 3),
        (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", 4),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", 4),
        (grpc.StatusCode.FAILED_PRECONDITION, "UNSATISFIABLE", 5),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", 75),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN", 75),
        (grpc.StatusCode.ABORTED, "CONFLICT", 75),
        (grpc.StatusCode.FAILED_PRECONDITION, "ILLEGAL_TRANSITION", 1),
        (grpc.StatusCode.INTERNAL, "INTERNAL", 1),
        (grpc.StatusCode.OUT_OF_RANGE, "A_WORD_OF_THE_FUTURE", 1),
    ],
)
def test_what_the_master_refuses_decides_the_exit_code(
    status: grpc.StatusCode, reason: str, code: int, master: FakeMaster, dlq: Dlq
) -> None:
    master.refuse("SubmitJob", status, reason, what="it cannot be", hint="do this instead")
    said = dlq("submit", *ALL_FIELDS)
    assert (said.code, said.out) == (code, "")
    assert said.err == "dlq: it cannot be\n  do this instead\n"


def test_all_reasons_why_a_job_could_never_run_are_told(master: FakeMaster, dlq: Dlq) -> None:
    master.refuse(
        "SubmitJob", grpc.StatusCode.FAILED_PRECONDITION, "UNSATISFIABLE",
        what="it could never run", reason_1="64 GPUs, the cluster has 8", reason_2="no b200",
        hint="dlq nodes",
    )  # fmt: skip
    said = dlq("submit", *ALL_FIELDS)
    assert said.err.splitlines() == [
        "dlq: it could never run",
        "  64 GPUs, the cluster has 8",
        "  no b200",
        "  dlq nodes",
    ]


def test_what_the_master_says_cannot_move_the_cursor(master: FakeMaster, dlq: Dlq) -> None:
    master.refuse("GetJob", grpc.StatusCode.NOT_FOUND, "NOT_FOUND", what="no\x1b[2J\nsuch job")
    assert dlq("show", "17").err == "dlq: no?[2J?such job\n"


def test_a_master_that_is_away_is_exit_69_and_a_submit_says_how_to_be_sure(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.stop()
    assert dlq("status", patience_s=0.2).code == 69
    said = dlq("submit", *ALL_FIELDS, patience_s=0.2)
    assert said.code == 69
    assert "it may have been queued; to be sure: dlq submit --request-id " in said.err


def test_a_master_of_another_cluster_is_not_believed(master: FakeMaster, tmp_path: Path) -> None:
    home = master.home(tmp_path / "home")
    stranger = Authority.create("lab", 1_795_000_000.0)
    (home / "ca.crt").write_bytes(stranger.certificate_pem())
    said = Dlq(home)("status", patience_s=0.2)
    assert said.code == 69
    assert master.asked == []


def test_nobody_logged_in_is_exit_4_with_the_way_in(tmp_path: Path) -> None:
    said = Dlq(tmp_path / "empty")("status")
    assert said.code == 4
    assert "nobody is logged in here" in said.err
    assert "dlq login" in said.err


def test_a_lost_reply_is_asked_for_again_under_the_same_key_and_queues_one_job(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.jobs.clear()
    master.lose_replies("SubmitJob", 3)
    said = dlq("submit", "--parsable", *ALL_FIELDS)
    assert (said.code, said.out) == (0, "17\n")
    requests = master.requests("SubmitJob")
    assert len(requests) == 4
    assert len({request.request_id for request in requests}) == 1
    assert list(master.jobs) == ["17"]


def test_a_named_request_id_submits_at_most_once_over_two_commands(
    master: FakeMaster, dlq: Dlq
) -> None:
    first = dlq("submit", "--request-id", "mine", *ALL_FIELDS)
    assert dlq("submit", "--request-id", "mine", *ALL_FIELDS).out == first.out
    assert len(master.submitted) == 1


def test_a_refusal_is_not_asked_again(master: FakeMaster, dlq: Dlq) -> None:
    master.refuse("SubmitJob", grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN", what="slow down")
    assert dlq("submit", *ALL_FIELDS).code == 75
    assert len(master.requests("SubmitJob")) == 1


def test_one_refusal_of_many_spares_no_other_job_and_decides_the_exit_code(
    master: FakeMaster, dlq: Dlq
) -> None:
    said = dlq("cancel", "99", "18")
    assert said.code == 3
    assert said.out == "job 18: cancelled\n"
    assert [list(ask.job_ids) for ask in master.requests("CancelJobs")] == [["99", "18"]]


def test_a_pipe_is_never_asked(master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("cancel", "17-18", stdin=b"n\n")
    assert said.code == 0
    assert said.out == "job 17: is ending (running)\njob 18: cancelled\n"
    assert [list(ask.job_ids) for ask in master.requests("CancelJobs")] == [["17", "18"]]


def test_the_sdk_raises_our_own_errors(master: FakeMaster) -> None:
    with Connection(master.identity_of(), patience_s=0.0) as connection:
        with pytest.raises(NotFound):
            Jobs(connection).get("99")
        master.refuse(
            "GetJob", grpc.StatusCode.FAILED_PRECONDITION, "UNSATISFIABLE", reason_1="too wide"
        )
        with pytest.raises(Unsatisfiable) as caught:
            Jobs(connection).get("17")
        assert caught.value.reasons == ("too wide",)
        master.refuse("GetCluster", grpc.StatusCode.PERMISSION_DENIED, "")
        with pytest.raises(PermissionDenied):
            Queues(connection).cluster()
        master.stop()
        with pytest.raises(Unavailable):
            Queues(connection).cluster()


@pytest.mark.parametrize("line", spread(["status", "submit -- true", "version"], 1))
def test_nothing_but_our_own_lines_is_on_stderr(
    line: str, master: FakeMaster, tmp_path: Path
) -> None:
    home = master.home(tmp_path / "home")
    stranger = Authority.create("lab", 1_795_000_000.0)
    (home / "ca.crt").write_bytes(stranger.certificate_pem())
    done = subprocess.run(
        [sys.executable, "-m", "dlq_cli.main", "--patience", "0.2", *line.split()],
        env={"DLQ_HOME": str(home), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 69
    assert all(part.startswith(("dlq: ", "  ")) for part in done.stderr.splitlines()), done.stderr


def test_what_quiets_grpc_does_not_reach_the_jobs(master: FakeMaster, dlq: Dlq) -> None:
    assert dlq("submit", "--export", "ALL", "--", "true").code == 0
    environment = master.requests("SubmitJob")[0].spec.environment
    assert "PATH" in environment
    assert "GRPC_VERBOSITY" not in environment


@pytest.mark.parametrize("line", ["show --json 99", "cancel --json 99", "why --json nosuchname"])
def test_who_asks_for_json_has_errors_in_json_too(line: str, dlq: Dlq) -> None:
    said = dlq(*line.split())
    told = json.loads(said.out)
    assert told["schema"] == "dlq.v1"
    assert said.err.startswith(f"dlq: {told['error']['message']}")
    assert told["error"]["exit_code"] == said.code == 3
    plain = dlq(*line.replace("--json ", "").split())
    assert (plain.code, plain.out) == (3, "")


def test_a_deadline_that_has_passed_has_no_advice_beside_it(dlq: Dlq) -> None:
    words = ("submit", "--no-wait", "--deadline", "2020-01-01T00:00", "--", "/bin/true")
    assert "nothing can be promised yet" not in dlq(*words).err
    later = (*words[:3], "2099-01-01T00:00", *words[4:])
    assert "nothing can be promised yet" in dlq(*later).err
