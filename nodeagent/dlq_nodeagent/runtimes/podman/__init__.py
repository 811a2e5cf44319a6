"""The `podman` runtime: ranks with an image run in containers.

`runtime` is the port's implementation. `prepare` makes image, mounts and secrets ready, and `run`
is the whole command line. Images are pulled by `pull` and `pulls`, kept by `images` and `records`,
removed by `clearing`.
"""
