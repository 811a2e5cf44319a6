"""The master: it keeps queues and nodes, decides which job runs where, and stores all of it.

`model` and `policy` are the pure core, `control` is the loop around it, `rpc` are its doors, and
`store` is the database. `serving` builds the parts of a running master. `app` is the command.
"""
