"""The real Trainer of transformers under plain SIGTERM, without and with many DataLoader
workers.
"""

from pathlib import Path

import pytest

from support.framework_trial import HF, Trained, Undisturbed, make_out
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]


@pytest.mark.parametrize("workers", ["0", "16"])
def test_the_trainer_saves_on_sigterm_and_ends_with_the_same_weights(
    user: UsersView, tmp_path: Path, undisturbed: Undisturbed, workers: str
) -> None:
    out, unhurried = make_out(tmp_path)
    words = HF.command(out, "--workers", workers, "--unhurried-while", str(unhurried))
    job = user.submit(
        "--checkpoint-preset", "hf", "--checkpoint-dir", str(out), "--gpus", "8",
        "-D", str(tmp_path), "--", *words,
    )  # fmt: skip
    trained = Trained(user, job, unhurried=unhurried)
    trained.wait_for_start(1)
    trained.push_away()
    trained.wait_for_start(2)
    trained.pause()
    trained.hurry()
    trained.resume()
    shown = trained.end()

    assert shown["lost_gpu_seconds"] == 0
    assert trained.attempts() == [
        ("preempted", "preempt", 0),  # the Trainer stops in order: only the checkpoint tells
        ("preempted", "pause", 0),
        ("succeeded", None, 0),
    ]
    first, second, third = trained.begins()
    assert 0 == first < second < third
    assert (out / "final.sha256").read_text() == undisturbed.digest(HF)
