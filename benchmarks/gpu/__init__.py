"""dlq on a real GPU, shown by one command without a network: `make gpu`.

    bare.py       an environment on a host with Python, a C compiler and nothing else of ours
    __main__.py   the list of checks, one after another, within eight minutes
    check.py      the port: a check has a claim, needs, a limit, and tells findings as it goes
    running.py    each check in a process of its own, so that a driver may hang and hold up no other
    machine.py    the machine: its interpreter for jobs, its driver, its stand-in
    evidence.py   logs and outputs of a check that did not hold
    site.py       one master and one agent on this machine, and jobs of ours
    watching.py   the memory of a GPU from look to look, by the agent's own code
    checks/       the checks, by subject
    jobs/         the programs that run as jobs: CUDA by ctypes, PyTorch, or a stand-in
    proof.py      one result file, and the table in Markdown
    page.py       docs/gpu-proof.md, from the results that are kept

A check knows two ports. `Site` starts jobs and asks dlq about them. `Watched` asks NVML. Jobs know
one: `Work`, by PyTorch on CUDA, or by a stand-in that `--stand-in` names. The tests run every check
against C fakes of NVML and of CUDA's driver (`tests/support/gpu_box.py`), with the stand-in
`numpy`. A run with a stand-in proves nothing of a GPU: it is neither kept nor shown on the page.
"""
