"""Values of the model as messages for users.

`convert` is the entry; the other modules write one part each. Nothing is decided or checked here.
`rpc.specs` reads the messages of users.
"""
