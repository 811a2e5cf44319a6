"""Jobs: the stored value, its state machine, and values that only jobs have.

`job` is the value, `job_steps` the table of its states and the one function that applies events to
it; `job_changes` holds changes that events share. `eligible` holds the reasons that keep a job from
waiting, `reward` the worth of a deadline. `trials` and `recording` hold the knowledge of run times
and of recorded starts. Pure, without a clock.
"""
