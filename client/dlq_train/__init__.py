"""Five lines that let a training loop be paused, moved to another node and resumed.

    import dlq_train

    run = dlq_train.init()
    model = run.resume(Model.load) or Model()
    for step in range(model.step, total):
        loss = model.train_step()
        run.beat(step + 1, loss=loss, total=total)
        if run.should_stop():
            run.save(step + 1, model.save)
            run.leave()
        if run.should_save():  # `dlq checkpoint`: save, and go on
            run.save(step + 1, model.save)
    run.done()

The package needs the standard library only and works outside dlq too, where no stop is ever asked
for. README.md beside this module describes each file.
"""

from dlq_train.checkpoint import Checkpoint, CheckpointUnusable
from dlq_train.notice import Notice
from dlq_train.run import PREEMPTED, Run, init

__all__ = ["PREEMPTED", "Checkpoint", "CheckpointUnusable", "Notice", "Run", "init"]
