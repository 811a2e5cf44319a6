"""The loop: the one place where the state of the cluster changes, one turn and one commit at a
time.

`inbox` is the only door in, `turn` is the draft of one turn, `loop` commits it, then publishes,
answers and sends. `control.composition` lists the functions that take part in a turn; `once` makes
a repeated request take effect once. `state` is everything that the loop owns, in slices that lie in
the `state` modules of their rooms; `starting` builds it from the database. `incidents` puts a
stimulus aside on which the master failed. Nothing here knows gRPC or SQL.
"""
