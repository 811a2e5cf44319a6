"""The loop: the one place where the state of the cluster changes, one turn and one commit at a
time.

`inbox` is the only door in, `turn` is the draft of one turn, `loop` commits it, then publishes,
answers and sends. `control.composition` lists the functions that take part in a turn; `once` makes
a repeated request take effect once. `watch` sends committed events to readers of the journal.
`incidents` puts a stimulus aside on which the master failed. Nothing here knows gRPC, SQL, or
another room: of the state it sees the type alone (`turn`).
"""
