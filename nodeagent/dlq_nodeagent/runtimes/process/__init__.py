"""The `process` runtime: each rank is a process tree below a shim of its own.

`runtime` is the port's implementation. `layout` names the files, `planfile` the shim's input,
`records` its output, and `logs` reads output while it grows.
"""
