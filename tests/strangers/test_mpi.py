"""MPICH's launcher finds the nodes of its job, and starts its helpers there by srun."""

from strangers.site import Account, environment

PROGRAM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
node = os.environ["SLURMD_NODENAME"]
print("rank", world.Get_rank(), "of", world.Get_size(), "sum", world.allreduce(1), "on", node)
"""


def test_mpiexec_over_the_nodes_of_a_job(user: Account) -> None:
    nodes = 1 if "SLURM_CONF" in user.variables else 2  # the real Slurm here has one
    programs = environment("mpi")
    user.write("program.py", PROGRAM)
    user.write(
        "mpi.sh",
        f"#!/bin/bash\n#SBATCH -N {nodes} --ntasks-per-node=2 -t 5 -o mpi.out\n"
        f"{programs}/mpiexec -launcher slurm -n {2 * nodes} {programs}/python program.py\n",
    )
    user.run("sbatch", "--wait", "mpi.sh", path=programs)
    said = sorted(user.until("mpi.out", f"rank {2 * nodes - 1} of").splitlines())
    size = 2 * nodes
    start = [f"rank {rank} of {size} sum {size} on" for rank in range(size)]
    assert [line.rpartition(" ")[0] for line in said] == start
    assert len({line.split()[-1] for line in said}) == nodes
