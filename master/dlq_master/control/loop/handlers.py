"""Which function takes which stimulus: the one list of what can happen to the master."""

from collections.abc import Callable
from typing import Any, Final

from dlq_master.control.attempts import barrier, live_resizes
from dlq_master.control.deadlines import misses, risks
from dlq_master.control.jobs import jobs, limits, submitting, telling, updating
from dlq_master.control.loans import loan_switch, loans, reclaims
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.machines import pools, renting
from dlq_master.control.nodes import gpu_health, labels, maintenance, nodes
from dlq_master.control.people import people, teams
from dlq_master.control.placement import policies, scheduling
from dlq_master.control.reservations import reservations
from dlq_master.control.stimuli import (
    AcceptGpus,
    AnnounceLeave,
    AnnounceMaintenance,
    CancelJob,
    CancelReservation,
    CheckpointJob,
    ClearGpuConditions,
    CloseSession,
    CommandDone,
    CreateReservation,
    CreateToken,
    DeleteTeam,
    DeleteUser,
    ExplainJob,
    FenceNode,
    ForgetNode,
    Heartbeat,
    HoldJob,
    LendServers,
    OpenSession,
    PauseJob,
    PlanMade,
    ProviderTold,
    RankReports,
    ReclaimServers,
    RefreshUser,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    RevokeToken,
    SetNodeFlags,
    SetNodeLabels,
    SetPolicy,
    SetTeam,
    SetUser,
    SignalJob,
    Stimulus,
    StopMachines,
    SubmitJob,
    SwitchLoans,
    TakeEvidence,
    TakeLook,
    Tick,
    UpdateJob,
    UseToken,
)
from dlq_master.control.trials import traffic, trials

# These answer with what stands at the end of the turn, after the plan.
_LATE: Final[dict[type, Callable[[Turn, Any], Answer]]] = {
    SubmitJob: submitting.submit,
    CancelJob: jobs.cancel,
    HoldJob: jobs.hold,
    ReleaseJob: jobs.release,
    PauseJob: jobs.pause,
    ResumeJob: jobs.resume,
    ExplainJob: jobs.explain,
    UpdateJob: updating.update,
    RequeueJob: telling.requeue,
    SignalJob: telling.signal,
    CheckpointJob: telling.checkpoint,
}

# These answer with what they return.
_PLAIN: Final[dict[type, Callable[[Turn, Any], Any]]] = {
    OpenSession: nodes.open_session,
    CloseSession: nodes.close_session,
    Heartbeat: nodes.heartbeat,
    RankReports: nodes.rank_reports,
    CommandDone: nodes.command_done,
    TakeEvidence: traffic.take,
    TakeLook: loans.take_look,
    AnnounceMaintenance: maintenance.announce,
    FenceNode: nodes.fence,
    SetNodeFlags: nodes.set_flags,
    SetNodeLabels: labels.set_labels,
    AcceptGpus: nodes.accept_gpus,
    ClearGpuConditions: gpu_health.clear,
    ForgetNode: nodes.forget,
    CreateToken: people.create_token,
    RevokeToken: people.revoke_token,
    UseToken: people.use_token,
    SetUser: people.set_user,
    RefreshUser: people.refresh_user,
    DeleteUser: people.delete_user,
    SetPolicy: policies.set_policy,
    SetTeam: teams.set_team,
    DeleteTeam: teams.delete_team,
    CreateReservation: reservations.create,
    CancelReservation: reservations.cancel,
    LendServers: loans.lend,
    SwitchLoans: loan_switch.switch,
    ReclaimServers: reclaims.reclaim,
    PlanMade: scheduling.plan_made,
    ProviderTold: pools.told,
    StopMachines: pools.stop,
    AnnounceLeave: pools.announce_leave,
}


def handle(turn: Turn, stimulus: Stimulus) -> Answer:
    """Let the stimulus take effect on the draft. Raises a DlqError when it changes nothing."""
    if isinstance(stimulus, Tick):
        _tick(turn, stimulus.name)
        return lambda: None
    late = _LATE.get(type(stimulus))
    if late is not None:
        return late(turn, stimulus)
    result = _PLAIN[type(stimulus)](turn, stimulus)
    return lambda: result


def _tick(turn: Turn, name: str) -> None:
    if name == "leases":
        nodes.watch_silence(turn)
        barrier.watch(turn)
        live_resizes.watch(turn)
        limits.watch(turn)
        trials.watch(turn)
        loans.watch(turn)
        renting.watch(turn)
        pools.watch(turn)
        risks.watch(turn)
        misses.watch(turn)
        traffic.close_overdue(turn)
        reservations.watch(turn)
        scheduling.notice_pause(turn)
        scheduling.watch_waits(turn)
    elif name == "compact":
        people.drop_expired(turn)
        kept_s = turn.state.config.jobs.request_id_kept
        turn.batch.forget_requests_before_s = turn.now_s - kept_s
