"""The simulated cluster: nodes, lent servers and rented machines, speeds, and the progress of jobs.

`clusters` reads the cluster file, `world` builds the cluster, and `course` follows one job. `fleet`
and `loans` change nodes over time. `knowledge` gives the scheduler its run times.
"""
