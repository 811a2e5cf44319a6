"""What a program took on one GPU type says nothing about another: real daemons, and a master that
begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_cli.commands.jobs import verdict
from support.cli_run import Said
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/policy/promise/test_promise_types.py",
        "unit/master/control/trials/test_control_trials.py",
    ),
]

LEASE = 'be_term = "2s"\nslo_term = "4s"\nsave_lead = "500ms"\nresume = "500ms"'
RUNS = 5  # the fewest by which a family is known
PROGRAM = ("--", "/bin/sleep", "10")  # long enough that a busy machine makes little difference


class TwoTypes(Daemons):
    """n1 has H100s, n2 has A100s."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        if name == "n2":
            config = self.root / f"{name}.toml"
            config.write_text(config.read_text().replace("H100-80GB", "A100-80GB"))


# An H100 does the work of an A100 in half of the time.
SPEEDS = "".join(
    f'[gpu_types."{gpu_type}-80gb"]\nspeed = {speed}\n'
    for gpu_type, speed in (("h100", 2.0), ("a100", 1.0))
)


@pytest.fixture
def daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Daemons]:
    monkeypatch.setattr(verdict, "PATIENCE_S", 60.0)  # however busy the machine is
    settings = getattr(request, "param", "")
    with TwoTypes(tmp_path, ("n1", "n2"), lease=LEASE, settings=settings).up() as made:
        yield made


def run_all(daemons: Daemons, *jobs: tuple[str, ...]) -> None:
    """Run these all at once, where the policy of the test would try them one by one."""
    daemons.said("admin", "policy", "set", "chronus", "-s", "trials=in-place", "-y")
    numbers = [daemons.said("submit", "--parsable", *words).strip() for words in jobs]
    daemons.said("wait", *numbers)
    settings = ("-s", "be_floor=0", "-s", "profile_floor=0")
    daemons.said("admin", "policy", "set", "chronus", *settings, "-y")


def with_deadline(daemons: Daemons, gpu_type: str) -> tuple[str, Said]:
    """The promise of a job of that program with a deadline in an hour, and what `submit` said."""
    done = daemons.dlq(
        "submit", "--json", "-G", "1", "--gpu-type", gpu_type, "--deadline", "1h", *PROGRAM
    )
    assert done.code == 0, done
    (job,) = json.loads(done.out)["jobs"]
    daemons.dlq("cancel", "--kill", job["job_id"])
    return job["promise"]["state"], done


def test_a_family_known_on_one_type_is_promised_there_and_not_on_another(daemons: Daemons) -> None:
    flags = ("-G", "1", "--gpu-type", "h100-80gb")
    run_all(daemons, *[(*flags, *PROGRAM)] * RUNS)
    for _ in range(2):
        state, _told = with_deadline(daemons, "h100-80gb")
        assert state == "guaranteed"
        state, told = with_deadline(daemons, "a100-80gb")
        assert state != "guaranteed", told
        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        wait_until(lambda: all_up(daemons), what="the nodes are back")


def all_up(daemons: Daemons) -> bool:
    """Whether every node may be given work."""
    nodes = json.loads(daemons.said("nodes", "--json"))["nodes"]
    return [node["state"] for node in nodes] == ["up"] * len(daemons.agents)


def estimate_of(daemons: Daemons, job_id: str) -> dict[str, object]:
    (job,) = json.loads(daemons.said("show", job_id, "--json"))["jobs"]
    told: dict[str, object] = job["estimate"]
    return told


def guessed(daemons: Daemons, *words: str) -> str:
    """A job that a master guesses the run time of which has learned nothing itself."""
    job_id = daemons.said("submit", "--parsable", "--hold", *words).strip()
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    wait_until(lambda: all_up(daemons), what="the nodes are back")
    daemons.said("release", job_id)
    wait_until(
        lambda: estimate_of(daemons, job_id).get("run_s") is not None,
        what="it is guessed",
    )
    return job_id


@pytest.mark.parametrize("daemons", [SPEEDS], indirect=True, ids=["declared"])
def test_an_estimate_names_the_runs_on_the_other_type_and_how_types_differ(
    daemons: Daemons,
) -> None:
    flags = ("-G", "1", "--gpu-type")
    run_all(daemons, *[(*flags, "h100-80gb", *PROGRAM)] * RUNS)
    job_id = guessed(daemons, *flags, "a100-80gb", "--deadline", "1h", *PROGRAM)
    told = estimate_of(daemons, job_id)
    other = f"{RUNS} runs on h100-80gb"
    assert told["rests_on"] == f"{other}, and a100-80gb takes 2.00 times as long (as declared)"
    assert str(told["rests_on"]) in daemons.said("show", job_id)
    daemons.dlq("cancel", "--kill", job_id)


def test_other_arguments_under_one_name_are_a_guess_that_is_promised_nothing(
    daemons: Daemons,
) -> None:
    flags = ("-G", "1", "--gpu-type", "h100-80gb", "--label", "family=sweep")
    zeros = ["10" if not at else f"10.{'0' * at}" for at in range(RUNS)]  # equal, written otherwise
    run_all(daemons, *[(*flags, "--", "/bin/sleep", each) for each in zeros])
    job_id = guessed(daemons, *flags, "--deadline", "1h", "--", "/bin/sleep", "11")
    told = estimate_of(daemons, job_id)
    assert (told["source"], told["confidence"]) == ("history", "low")
    assert told["rests_on"] == f"{RUNS} runs with other arguments on h100-80gb"
    assert str(told["rests_on"]) in daemons.said("show", job_id)
    assert "no deadline is promised on it" in daemons.said("show", job_id)
    (job,) = json.loads(daemons.said("show", job_id, "--json"))["jobs"]
    assert job["promise"]["state"] != "guaranteed", job
    daemons.dlq("cancel", "--kill", job_id)
