"""Real Lightning in a script written for Slurm: it saves, asks to be queued again, and goes on."""

from pathlib import Path

import pytest

from support.framework_trial import EXAMPLES, PYTHON, TRAINING, Trained, Undisturbed
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


def test_lightning_requeues_itself_by_scontrol_and_ends_with_the_same_weights(
    user: UsersView, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    command = f"{PYTHON} {EXAMPLES / 'lightning_digits.py'} --out {out} {' '.join(TRAINING)}"
    script = tmp_path / "train.slurm"
    script.write_text(SCRIPT.format(command=command))

    with Undisturbed(tmp_path / "undisturbed", "lightning_digits.py", *TRAINING) as undisturbed:
        trained = Trained(
            user,
            user.submit(
                "--checkpoint-preset", "lightning", "--checkpoint-dir", str(out),
                "-D", str(tmp_path), str(script),
            ),
        )  # fmt: skip
        trained.wait_for_start(1)
        trained.push_away()
        trained.wait_for_start(2)
        trained.pause_and_resume()
        shown = trained.end()
        assert (out / "final.sha256").read_text() == undisturbed.digest()

    assert shown["name"] == "digits"
    assert shown["lost_gpu_seconds"] == 0
    assert trained.attempts() == [
        ("preempted", "preempt", 99),
        ("preempted", "pause", 99),
        ("succeeded", None, 0),
    ]
    first, second, third = trained.begins()
    assert 0 == first < second < third
    assert "hpc_ckpt_2.ckpt" in trained.output(3)
