"""Checks of nodes: short jobs of the master that measure a node, and what follows from their ends.

`starting` makes such a job and starts it, `results` judges its end, `watching` decides when. Only a
cluster that names a `[checks] user` loads this room.
"""
