"""Values of the model as messages for users.

`convert` is the entry; the others write one part each. Nothing is decided or checked here;
`rpc.specs` reads the messages that come from users.
"""
