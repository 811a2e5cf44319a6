"""torchrun's variables for a job whose nodes come and go (docs/using/elastic-live.md).

torchrun's elastic rendezvous, c10d, finds the members. Each time a node joins or leaves, all
workers end and start again, and the torchruns stay. Tried with PyTorch 2.13.
"""

from collections.abc import Callable, Mapping

from dlq_common.live_resize import JOIN_FAILED, JOINING_S, RESTARTS_PER_ATTEMPT
from dlq_nodeagent.model.messages import Launch, Stop
from dlq_nodeagent.model.rank import Rank, RankState
from dlq_nodeagent.runtimes.process.logs import LOGS

SIGNALS_TO_HANDLE = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"
# Seconds. A node that was silent for this many intervals has left; the workers of the others wait
# for that. Once as many nodes as it needs are there, the rendezvous waits so long for more, unless
# all are. A waiting node checks once a second whether it may join. With less, the running nodes
# would begin without it, and all start their workers twice.
_KEEP_ALIVE = 1
_MISSED = 3
_LAST_CALL = 3


def live_torchrun(launch: Launch, gpus: int, job_dir: str) -> Mapping[str, str]:
    """Defaults of torchrun's options; the user's flags still win."""
    rank, each = launch.key.node_rank, max(1, gpus)
    fewest, most = (max(1, size // each) for size in (launch.sizes[0], launch.sizes[-1]))
    conf = {
        "is_host": int(rank == 0),  # by us: a host may have a name that it does not know
        "last_call_timeout": _LAST_CALL,
        "keep_alive_interval": _KEEP_ALIVE,
        "keep_alive_max_attempt": _MISSED,
    }
    # It makes a directory there for each start of its workers: so it shows how often they have
    # failed.
    logs = {"PET_LOG_DIR": f"{job_dir}/{LOGS}"} if launch.joins else {}
    return {
        **logs,
        "PET_NNODES": f"{fewest}:{most}",
        "PET_NPROC_PER_NODE": str(each),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{launch.node_addresses[0]}:{launch.master_port}",
        "PET_RDZV_ID": f"{launch.key.job_id}.{launch.key.attempt}",
        "PET_RDZV_CONF": ",".join(f"{name}={value}" for name, value in conf.items()),
        "PET_LOCAL_ADDR": launch.node_addresses[rank],
        "PET_MAX_RESTARTS": str(RESTARTS_PER_ATTEMPT),
        "PET_SIGNALS_TO_HANDLE": SIGNALS_TO_HANDLE,
        # Rank 0 of the workers may be on another node each time: the store that they meet at goes
        # with it.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, round(launch.grace_s))),
    }


# So often its workers fail where it has just joined. Others that leave at the same time cost it
# one, or two.
_FAILURES = 3
# This includes nodes that blame others: of two that join at once, the failing one takes the other
# along.
_FAILURES_OF_OTHERS = 6


def may_fail_to_join(rank: Rank, now_s: float) -> bool:
    """Whether it has joined so recently that its workers are watched."""
    started_s = rank.started_s
    lately = started_s is not None and now_s < started_s + JOINING_S
    return rank.launch.joins and rank.state is RankState.RUNNING and lately


def stop_of_a_failure(rank: Rank, failures: int, blames_others: Callable[[], bool]) -> Stop | None:
    """The stop for a rank that cannot join, so that the master is told; None: too early.

    `blames_others`: whether its output says that others have gone. Left alone, all ranks would
    restart their workers until the restarts are used up, and none would train.
    """
    if failures < _FAILURES or (failures < _FAILURES_OF_OTHERS and blames_others()):
        return None
    return Stop(key=rank.launch.key, fence=rank.launch.fence, cause=JOIN_FAILED, grace_s=0.0)
