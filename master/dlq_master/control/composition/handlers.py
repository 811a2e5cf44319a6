"""The handler of each stimulus: the one list of everything that can happen to the master.

A handler lets the stimulus take effect on the draft. It raises a DlqError when it changes nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from dlq_master.control.jobs import actions, jobs, submitting, updating
from dlq_master.control.loans import loan_switch, loans, reclaims
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.machines import pools
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
    StopMachines,
    SubmitJob,
    SwitchLoans,
    TakeEvidence,
    TakeLook,
    UpdateJob,
    UseToken,
)
from dlq_master.control.trials import traffic

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
    RequeueJob: actions.requeue,
    SignalJob: actions.signal,
    CheckpointJob: actions.checkpoint,
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


def _plain(handler: Callable[[Turn, Any], Any]) -> Callable[[Turn, Any], Answer]:
    def handle(turn: Turn, stimulus: Any) -> Answer:
        result = handler(turn, stimulus)
        return lambda: result

    return handle


HANDLERS: Final[dict[type, Callable[[Turn, Any], Answer]]] = {
    **_LATE,
    **{kind: _plain(handler) for kind, handler in _PLAIN.items()},
}
