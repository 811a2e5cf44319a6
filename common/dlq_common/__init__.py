"""What every room shares; a closed list, each module with one idea.

    addresses       HOST:PORT
    arrays          0-15, 1,3,7, 0-99%4 and 12_[0-3]
    clock           the steady time axis, and its fake
    config          TOML and environment into frozen values (daemons only)
    container_names  which images, mounts and secrets pass
    errors          the tree of expected failures
    gpu_memory      how frameworks say that a GPU's memory was not enough
    hostlist        gpu[01-08]
    identity_files  where keys and certificates lie
    ids             request ids, sessions, secrets, seeds
    instants        points in time as people write them
    join_token      what a new node is handed
    live_resize     what torchrun is told of jobs that it resizes
    logs            one JSON object a line (daemons only)
    lost_peer       how a program says that one it worked with has gone
    names           which names and paths from outside pass
    pki             keys, requests and certificates
    private_files   keys that nobody else may read
    sizes           2:8 and 2,4,8 GPUs
    start_causes    why a rank could not be started, and whether that speaks against its node
    suggest         did you mean
    systemd         what a daemon and the systemd above it tell each other
    units           durations and sizes as people write them
    wire            Timestamp and Duration

A module that does not fit into one line here belongs into a room.
"""
