"""The loop: the one place where the state of the cluster changes, one turn and one commit at a
time.

`inbox` is the only door in, `handlers` lists what can happen, `turn` is the draft of one turn,
`loop` commits it, then publishes, answers and sends. `state` is everything that the loop owns;
`starting` builds it from the database. `incidents` puts a stimulus aside on which the master
failed. Nothing here knows gRPC or SQL.
"""
