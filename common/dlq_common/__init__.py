"""Modules that every distribution shares. The list is closed, and each module has one idea.

    clock         the steady time axis, and its fake
    daemon        configuration, logs and the protocol of systemd (daemons only)
    errors        the tree of expected failures
    gpu_memory    how frameworks say that a GPU's memory was not enough
    identity      keys, certificates, where they lie, and join tokens
    ids           request ids, sessions, secrets, seeds
    live_resize   what torchrun is told of jobs that it resizes
    job_fields    the fields of a job, each declared once: flag, template, message, check
    lost_peer     how a program says that one it worked with has gone
    start_causes  why a rank could not be started, and whether that speaks against its node
    text          values as people write them: durations, instants, sizes, names, host lists

A module that does not fit into one line here belongs into a room.
"""
