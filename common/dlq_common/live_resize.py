"""The agreement of master and agents on jobs that torchrun resizes while they run
(docs/using/elastic-live.md).
"""

LIVE = "live"  # the word of a spec
FEATURE = "live-resize"  # what an agent says that knows how

# torchrun counts it as a restart when workers end because others leave, and when they fail by
# themselves. Twice what the master has resized an attempt by then (model/attempts/live_resize.py),
# so that failures are left some.
RESTARTS_PER_ATTEMPT = 16

# For so long after it joined, in seconds, a rank whose workers keep failing goes again.
JOINING_S = 300.0
JOIN_FAILED = "join_failed"  # why its agent has ended it then

_TORCHRUN = ("torchrun", "torch.distributed.run")
# Flags of torchrun that go before the variables in which the cluster tells it who may be there.
_WOULD_WIN = (
    "--nnodes", "--node-rank", "--nproc-per-node", "--rdzv", "--standalone", "--max-restarts", "--master-addr",  # noqa: E501
    "--master-port", "--local-addr",
)  # fmt: skip


def names_torchrun(program: str) -> bool:
    """Whether this command, or script, says that torchrun is started."""
    return any(name in program for name in _TORCHRUN)


def flag_that_would_win(program: str) -> str:
    """A flag with which torchrun would not hear what the cluster tells it; empty: there is none."""
    if names_torchrun(program):
        for word in program.split():
            flag = word.replace("_", "-")
            if flag.startswith(_WOULD_WIN):
                return word
            if flag.endswith(".py"):  # what follows is the script's
                break
    return ""
