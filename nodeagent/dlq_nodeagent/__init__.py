"""The node agent: it runs ranks on one host and reports them to the master.

`core` compares wanted and running ranks, and `supervisor` runs each one by the state machine in
`model`. `line` is the connection to the master, `runtimes` start processes or containers, and
`shim` is the C program around each rank. `daemon` builds the real parts.
"""
