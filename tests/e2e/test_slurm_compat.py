"""A script for Slurm on two nodes: steps, a requeue by itself, and a job that it submits."""

from pathlib import Path

import pytest

from cluster import Cluster
from dlq.v1 import job_pb2
from support.users_view import UsersView

pytestmark = pytest.mark.e2e

STEPS = """\
#!/bin/bash
#SBATCH --job-name=steps --nodes=2 --gpus-per-node=2 --ntasks-per-node=2
srun -l sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME'
scontrol show hostnames | tr '\\n' ' '
if [ -z "$SLURM_RESTART_COUNT" ]; then
    scontrol requeue $SLURM_JOB_ID
    exec sleep 600
fi
echo "again: $SLURM_RESTART_COUNT"
"""


def lines(user: UsersView, job: str, rank: int) -> list[str]:
    """The output of one node of the last attempt, in no order that matters."""
    output = user.dlq("logs", "-n", "all", "--rank", str(rank), job)
    return sorted(line for line in output.splitlines() if not line.startswith("---"))


def test_a_step_is_on_all_nodes_and_a_requeue_takes_all_of_them_along(
    user: UsersView, tmp_path: Path
) -> None:
    (tmp_path / "steps.slurm").write_text(STEPS)
    job = user.submit("--compat", "slurm", "-D", str(tmp_path), str(tmp_path / "steps.slurm"))
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)

    shown = user.show(job)
    assert shown["name"] == "steps"
    first, second = shown["attempts"]
    assert first["ranks"][0]["exit_code"] == 99
    assert (first["state"], second["state"]) == ("failed", "succeeded")
    requeued = [each for each in user.events(job) if each["kind"] == "job_requeued"]
    assert [each["data"]["reason"] for each in requeued] == ["requeue_exit"]

    assert lines(user, job, 0) == [
        "0: rank 0 of 4 on e2e-a",
        "1: rank 1 of 4 on e2e-a",
        "2: rank 2 of 4 on e2e-b",
        "3: rank 3 of 4 on e2e-b",
        "e2e-a e2e-b again: 1",
    ]
    assert lines(user, job, 1) == []


def test_a_job_submits_another_one_as_its_user_where_it_can_read_who_that_is(
    cluster: Cluster, user: UsersView, tmp_path: Path
) -> None:
    identity = tmp_path / "config" / "dlq"
    identity.parent.mkdir()
    identity.symlink_to(cluster.home)
    script = tmp_path / "parent.slurm"
    script.write_text(
        "#!/bin/sh\n#SBATCH -J parent -G1\nid=$(sbatch --parsable -G1 -J child --wrap 'echo "
        "$SLURM_JOB_NAME')\n"
        'echo "child $id"\nsqueue -h -j "$id" -o "%i %j"\n'
    )
    where = ("--compat", "slurm", "-D", str(tmp_path))

    job = user.submit(*where, "--env", f"XDG_CONFIG_HOME={identity.parent}", str(script))
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    child = str(int(job) + 1)
    assert f"child {child}\n" in user.dlq("logs", job)
    user.wait_for_end(child)
    assert user.dlq("logs", child) == "child\n"

    stranger = user.submit(*where, "--env", f"XDG_CONFIG_HOME={tmp_path / 'none'}", str(script))
    user.wait_for_end(stranger)
    assert "holds no valid identity" in user.dlq("logs", stranger)
