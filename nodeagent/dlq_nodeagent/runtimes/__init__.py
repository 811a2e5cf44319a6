"""Ways to run a rank, behind the port in `dlq_nodeagent.model.port`.

`process` starts a process below a shim, `podman` a container, and `fake` nothing, for tests.
"""
