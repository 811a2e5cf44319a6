"""Modules that every distribution shares. The list is closed, and each module has one idea.

    clock         the steady time axis, and its fake
    daemon        configuration, logs and the protocol of systemd (daemons only)
    errors        the tree of expected failures
    failure_signs  lines of output that tell why a job failed: GPU memory, a lost peer
    fence         the database, timeline and epoch of a leading master, and which may be obeyed
    identity      keys, certificates, where they lie, and join tokens
    ids           request ids, sessions, secrets, seeds
    live_resize   what torchrun is told of jobs that it resizes
    notices       events and targets of notifications
    page          the style sheet of every HTML page: of `dlq web` and of simulated reports
    slowdown      how much slower a spread job runs: formulas of the place stage and the profiler
    job_fields    the fields of a job, each declared once: flag, template, message, check
    start_causes  why a rank could not be started, and whether that speaks against its node
    text          values as people write them: durations, instants, sizes, names, host lists

A module that does not fit into one line here belongs into a room.
"""
