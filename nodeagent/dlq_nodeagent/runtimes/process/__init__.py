"""The `process` runtime: each rank is a process tree below a shim of its own.

`runtime` is the port's implementation, `layout` says where files lie, `planfile` is what the shim
reads, `records` what it writes, `logs` reads output while it grows.
"""
