"""Nodes: their sessions, silence, flags and health, and what speaks against them.

`nodes` opens sessions and gives silent nodes up. `instances` lets one agent speak for a node.
`gpu_health`, `unclean` and `emptiness` say which GPUs may be given out. `quarantine` closes nodes
on which starts fail (`blame` says which failures count). Flags and conditions are stored with
nodes; contact is heard anew after a restart.
"""
