"""Stand-ins for Slurm's programs, for jobs with `compat = "slurm"` and for hosts that submit them.

They run inside a user's job, perhaps in a container. They use the standard library only, any Python
from 3.8 on, and no more rights than the job has. `install.py` copies this package out of the wheel
to where jobs may read it; README.md beside this module describes the abilities and limits of each
program.
"""
