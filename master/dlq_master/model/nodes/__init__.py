"""Nodes: the stored value, its state machine, its GPUs and the times in which it is reserved.

`node` is the value, `node_steps` the table of its states. `gpu_health` says what a fault of a GPU
leads to. `capacity` and `free_gpus` index free GPUs by type and node; `windows` and `reserved` say
which nodes a reservation takes; `owned` tells own nodes from lent and rented ones. Pure, without a
clock.
"""
