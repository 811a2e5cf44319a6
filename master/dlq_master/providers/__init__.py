"""Providers of rented machines, behind one port; called in threads, outside of the loop.

`port` is the interface. `exec` calls a program of the operator, `slurm` submits pilot jobs, and
`static` has hosts that exist anyway. `desk` runs the calls, `runner` and `leash` the programs.
"""
