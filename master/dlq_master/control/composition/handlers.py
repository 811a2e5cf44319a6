"""The handlers of stimuli: the one list of everything that can happen to the master.

A handler lets the stimulus take effect on the draft. It raises a DlqError when it changes nothing.
The type of its second parameter says which stimulus it handles.
"""

from collections.abc import Callable
from typing import Any, Final, get_type_hints

from dlq_common.errors import IllegalTransition
from dlq_master.control.composition import edits
from dlq_master.control.jobs import groups, jobs, submitting, updating
from dlq_master.control.loans import loans, reclaims
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.machines import pool_hellos, pools, provider_answers
from dlq_master.control.nodes import gpu_health, labels, maintenance, nodes
from dlq_master.control.people import attendance, notify_rules, people, revocations, teams
from dlq_master.control.placement import policies, scheduling
from dlq_master.control.reservations import reservations
from dlq_master.control.stimuli import (
    AdmitGuest,
    CheckNodes,
    EditMany,
    GrantRevoked,
    GrantsUsed,
    JobEdit,
    KeepGrant,
    MakeGrant,
    Opened,
    OpenSession,
    RevokeGrant,
    ShareAuthority,
    StepDown,
    User,
)
from dlq_master.control.trials import traffic
from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import CA_FILES
from dlq_master.store.tables.tenants import GivenGrant, HeldGrant

# These answer with what stands at the end of the turn, after the plan.
_LATE: Final[tuple[Callable[[Turn, Any], Answer], ...]] = (
    submitting.submit,
    submitting.submit_many,
    groups.submit_group,
    jobs.cancel,
    jobs.hold,
    jobs.release,
    jobs.pause,
    jobs.resume,
    jobs.explain,
    attendance.attend,
    updating.update,
    jobs.requeue,
    jobs.signal,
    jobs.checkpoint,
)


def _open_session(turn: Turn, ask: OpenSession) -> Opened:
    """A host that says it is a rented machine is looked at before its node is believed."""
    pool_hellos.check(turn.state, ask)
    return nodes.open_session(turn, ask)


def _epoch_of(_turn: Turn, _ask: StepDown, word: str) -> int:
    return int(word)


@once(_epoch_of)
def _step_down(turn: Turn, ask: StepDown) -> Done[int]:
    """Note it. The server stops the loop after its answer, where the epoch is still this one."""
    if ask.found:
        raise IllegalTransition(f"this master goes on to lead: {ask.found}")
    epoch = turn.state.epoch
    turn.note("lead_given_up", actor=ask.caller.actor, epoch=epoch)
    return Done(epoch, epoch)


def _check_nodes(turn: Turn, ask: CheckNodes) -> Job:
    room = turn.state.nodes.checks.room
    if room is None:
        raise IllegalTransition("no checks are configured", hint="name a user in [checks]")
    return room.check(turn, ask)


def _make_grant(turn: Turn, ask: MakeGrant) -> GivenGrant:
    from dlq_master.control.people import grants  # most masters have none

    return grants.make(turn, ask)


def _revoke_grant(turn: Turn, ask: RevokeGrant) -> GrantRevoked:
    from dlq_master.control.people import grants

    return grants.revoke(turn, ask)


def _admit_guest(turn: Turn, ask: AdmitGuest) -> User:
    from dlq_master.control.people import grants

    return grants.admit(turn, ask)


def _keep_grant(turn: Turn, ask: KeepGrant) -> HeldGrant:
    from dlq_master.control.people import grants

    return grants.keep(turn, ask)


def _grants_used(turn: Turn, ask: GrantsUsed) -> bool:
    from dlq_master.control.people import grants

    return grants.look(turn, ask)


def _share_authority(turn: Turn, ask: ShareAuthority) -> None:
    turn.batch.meta[CA_FILES] = ask.sealed


# These answer with what they return.
_PLAIN: Final[tuple[Callable[[Turn, Any], Any], ...]] = (
    _open_session,
    submitting.withdraw,
    nodes.close_session,
    nodes.heartbeat,
    nodes.rank_reports,
    nodes.command_done,
    traffic.take,
    jobs.take_hook_results,
    loans.take_look,
    maintenance.announce,
    nodes.fence,
    nodes.set_flags,
    labels.set_labels,
    nodes.accept_gpus,
    gpu_health.clear,
    nodes.forget,
    people.create_token,
    people.revoke_token,
    revocations.revoke,
    people.use_token,
    people.set_user,
    people.refresh_user,
    people.delete_user,
    policies.set_policy,
    teams.set_team,
    teams.delete_team,
    notify_rules.add,
    notify_rules.remove,
    notify_rules.test,
    reservations.create,
    reservations.cancel,
    loans.lend,
    loans.switch,
    reclaims.reclaim,
    scheduling.plan_made,
    provider_answers.told,
    pools.stop,
    pools.announce_leave,
    _step_down,
    _check_nodes,
    _share_authority,
    _make_grant,
    _revoke_grant,
    _admit_guest,
    _keep_grant,
    _grants_used,
)


def _plain(handler: Callable[[Turn, Any], Any]) -> Callable[[Turn, Any], Answer]:
    def handle(turn: Turn, stimulus: Any) -> Answer:
        result = handler(turn, stimulus)
        return lambda: result

    return handle


def _handled(handler: Callable[[Turn, Any], Any]) -> type:
    kinds = list(get_type_hints(handler).values())
    assert isinstance(kinds[1], type), handler
    return kinds[1]


def _edit(turn: Turn, edit: JobEdit) -> Answer:
    return HANDLERS[type(edit)](turn, edit)


HANDLERS: Final[dict[type, Callable[[Turn, Any], Answer]]] = {
    EditMany: edits.of_each(_edit),
    **{_handled(handler): handler for handler in _LATE},
    **{_handled(handler): _plain(handler) for handler in _PLAIN},
}
