"""The real Trainer of transformers under plain SIGTERM, without and with many DataLoader workers."""

from pathlib import Path

import pytest

from support.framework_trial import EXAMPLES, PYTHON, TRAINING, Trained, Undisturbed
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]


@pytest.mark.parametrize("workers", ["0", "16"])
def test_the_trainer_saves_on_sigterm_and_ends_with_the_same_weights(
    user: UsersView, tmp_path: Path, workers: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    options = (*TRAINING, "--workers", workers)
    with Undisturbed(tmp_path / "undisturbed", "hf_digits.py", *TRAINING) as undisturbed:
        trained = Trained(
            user,
            user.submit(
                "--checkpoint-preset", "hf", "--checkpoint-dir", str(out), "--gpus", "8",
                "-D", str(tmp_path), "--",
                str(PYTHON), str(EXAMPLES / "hf_digits.py"), "--out", str(out), *options,
            ),
        )  # fmt: skip
        trained.wait_for_start(1)
        trained.push_away()
        trained.wait_for_start(2)
        trained.pause_and_resume()
        shown = trained.end()
        assert (out / "final.sha256").read_text() == undisturbed.digest()

    assert shown["lost_gpu_seconds"] == 0
    assert trained.attempts() == [
        ("preempted", "preempt", 0),  # the Trainer stops in order: only the checkpoint tells
        ("preempted", "pause", 0),
        ("succeeded", None, 0),
    ]
    first, second, third = trained.begins()
    assert 0 == first < second < third
