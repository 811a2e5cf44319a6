"""Control groups v1, hybrid and v2 behind one port, and `none` for hosts without them.

`port` is the interface, `trees` implements it, and `detect` chooses one. `device_filter` keeps jobs
from GPUs of others on v2.
"""
