"""Lightning's own requeue: a signal, a checkpoint, `scontrol requeue`, and on from there."""

from strangers.site import Account, environment

PROGRAM = """
import os, signal, time, torch, lightning as L
from lightning.pytorch.plugins.environments import SLURMEnvironment
class Model(L.LightningModule):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        with open("steps.txt", "a") as file:
            file.write(f"{os.environ.get('SLURM_RESTART_COUNT', '0')} {self.global_step}\\n")
        time.sleep(0.2)
        return self.layer(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(60, 4)), batch_size=2)
trainer = L.Trainer(max_steps=25, accelerator="cpu", devices=1, logger=False, num_nodes=1,
    enable_progress_bar=False, plugins=[SLURMEnvironment(requeue_signal=signal.SIGUSR1)],
    default_root_dir=os.getcwd())
trainer.fit(Model(), data)
open("done.txt", "w").write(f"{trainer.global_step}\\n")
"""


def test_it_requeues_itself_and_goes_on(user: Account) -> None:
    user.write("train.py", PROGRAM)
    python = environment("lightning") / "python"
    user.write(
        "train.slurm",
        "#!/bin/bash\n#SBATCH -J lit --ntasks=1 --ntasks-per-node=1 --time=00:10:00 --requeue\n"
        f"#SBATCH --open-mode=append\nsrun {python} train.py\n",
    )
    job = user.run("sbatch", "--parsable", "train.slurm").stdout.split()[0]
    user.until("steps.txt", "0 3", 90.0)
    user.run("scancel", "--signal=USR1", job)
    user.until("done.txt", "25", 240.0)  # Slurm waits for two minutes first
    assert user.until("done.txt") == "25\n"
    steps = [line.split() for line in user.until("steps.txt").splitlines()]
    again = [int(step) for restart, step in steps if restart == "1"]
    assert again, "it was never requeued"
    assert again[0] > 0, "it began from nothing"
