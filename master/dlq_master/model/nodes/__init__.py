"""Nodes: the stored value, its state machine, its GPUs and the times in which it is reserved.

`node` is the value, `node_steps` the table of its states. `gpu_health` says what a fault of a GPU
leads to. `capacity` and `pool` index free GPUs by type and node; `windows` and `booked` say which
nodes a reservation takes; `own` tells own nodes from lent and rented ones. Pure, without a clock.
"""
