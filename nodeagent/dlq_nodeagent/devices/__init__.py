"""The devices of the host: GPUs behind one port, cores, and facts about the host.

`port` is the interface of GPUs; `nvml` and `fake` implement it, and `choose` picks one. `watch`
reports health and load. `cores` divides the cores among jobs.
"""
