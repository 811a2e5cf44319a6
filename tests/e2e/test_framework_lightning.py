"""Real Lightning in a script written for Slurm: it saves, asks to be queued again, and goes on."""

from pathlib import Path

import pytest

from support.framework_trial import LIGHTNING, Trained, Undisturbed, make_out
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=digits --ntasks-per-node=1
#SBATCH --gpus-per-node=8 --time=1:00:00
#SBATCH --output=%j.out

srun {command}
echo "srun ended with $?"
"""


@pytest.mark.parametrize("as_it_is", [False, True], ids=["between_steps", "as_it_is"])
def test_lightning_requeues_itself_by_scontrol_and_goes_on(
    user: UsersView, tmp_path: Path, undisturbed: Undisturbed, as_it_is: bool
) -> None:
    out, unhurried = make_out(tmp_path)
    more = ("--as-it-is",) if as_it_is else ()
    script = tmp_path / "train.slurm"
    command = LIGHTNING.command(out, "--unhurried-while", str(unhurried), *more)
    script.write_text(SCRIPT.format(command=" ".join(command)))

    job = user.submit(
        "--checkpoint-preset", "lightning", "--checkpoint-dir", str(out),
        "-D", str(tmp_path), str(script),
    )  # fmt: skip
    trained = Trained(user, job, unhurried=unhurried)
    trained.wait_for_start(1)
    trained.push_away()
    trained.wait_for_start(2)
    trained.pause()
    trained.hurry()
    trained.resume()
    shown = trained.end()

    assert shown["name"] == "digits"
    assert shown["lost_gpu_seconds"] == 0
    assert trained.attempts() == [
        ("preempted", "preempt", 99),
        ("preempted", "pause", 99),
        ("succeeded", None, 0),
    ]
    first, second, third = trained.begins()
    assert 0 == first < second < third
    assert "hpc_ckpt_2.ckpt" in user.output(job, 3)
    # As it is, Lightning saves wherever its handler finds it, perhaps in the middle of a step.
    if not as_it_is:
        assert (out / "final.sha256").read_text() == undisturbed.digest(LIGHTNING)
