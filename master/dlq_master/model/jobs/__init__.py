"""Jobs: the stored value, its state machine, and values that only jobs have.

`job` is the value, `job_steps` the table of its states and the one function that applies events to
it; `job_draft` collects the changes of one event. `eligible` says what keeps a job from waiting,
`reward` what a deadline is worth, `trials` and `recording` what is known of run times and of
recorded starts. Pure, without a clock.
"""
