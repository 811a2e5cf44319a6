"""The agreement of master and agents on jobs that torchrun resizes while they run
(docs/using/elastic-live.md).
"""

LIVE = "live"  # the word of a spec
FEATURE = "live-resize"  # the word of an agent that supports it

# torchrun counts it as a restart when workers end because others leave, and when they fail by
# themselves. Twice the number of resizes so far (model/attempts/live_resize.py), so that some
# restarts are left for failures.
RESTARTS_PER_ATTEMPT = 16

# A rank whose workers keep failing leaves again within this time after it joined, in seconds.
JOINING_S = 300.0
JOIN_FAILED = "join_failed"  # why its agent has ended it then

_TORCHRUN = ("torchrun", "torch.distributed.run")
# Flags of torchrun that win over the variables with which the cluster names the permitted nodes.
_WOULD_WIN = (
    "--nnodes", "--node-rank", "--nproc-per-node", "--rdzv", "--standalone", "--max-restarts", "--master-addr",  # noqa: E501
    "--master-port", "--local-addr",
)  # fmt: skip


def names_torchrun(program: str) -> bool:
    """Whether this command, or script, says that torchrun is started."""
    return any(name in program for name in _TORCHRUN)


def flag_that_would_win(program: str) -> str:
    """A flag that makes torchrun ignore the cluster's variables; empty: there is none."""
    if names_torchrun(program):
        for word in program.split():
            flag = word.replace("_", "-")
            if flag.startswith(_WOULD_WIN):
                return word
            if flag.endswith(".py"):  # the words from here on are the script's
                break
    return ""
