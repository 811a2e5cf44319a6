"""Nodes: their sessions, silence, flags and health.

`nodes` opens sessions and gives silent nodes up. `instances` lets one agent speak for a node.
`gpu_health`, `unclean` and `emptiness` say which GPUs may be given out. Flags and conditions are
stored with nodes; the times of last contact are not, and start anew after a restart.
"""
