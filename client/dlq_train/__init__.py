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

Needs the standard library only, works outside dlq too (then nothing ever asks it to stop), and is
described file by file in README.md beside this module.
"""

from dlq_train.checkpoint import Checkpoint, CheckpointUnusable
from dlq_train.notice import Notice
from dlq_train.run import PREEMPTED, Run, init

__all__ = ["PREEMPTED", "Checkpoint", "CheckpointUnusable", "Notice", "Run", "init"]
