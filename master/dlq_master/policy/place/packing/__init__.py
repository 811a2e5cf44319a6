"""Packing a batch of jobs onto nodes: the common parts of all placements of batches.

`joint` is the batch and the free GPUs, `partitions` the ways to cut a width, `pattern` the integer
program, `class_packing` asks only whether everything fits. Pure; scipy solves.
"""
