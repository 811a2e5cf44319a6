"""Everything that can enter the loop's inbox, and what each of them is answered with."""

from dataclasses import dataclass
from typing import TypeAlias

from dlq_master.control.admin_stimuli import AcceptGpus as AcceptGpus
from dlq_master.control.admin_stimuli import CancelReservation as CancelReservation
from dlq_master.control.admin_stimuli import ClearGpuConditions as ClearGpuConditions
from dlq_master.control.admin_stimuli import CreateReservation as CreateReservation
from dlq_master.control.admin_stimuli import CreateToken as CreateToken
from dlq_master.control.admin_stimuli import DeleteTeam as DeleteTeam
from dlq_master.control.admin_stimuli import DeleteUser as DeleteUser
from dlq_master.control.admin_stimuli import Fenced as Fenced
from dlq_master.control.admin_stimuli import FenceNode as FenceNode
from dlq_master.control.admin_stimuli import ForgetNode as ForgetNode
from dlq_master.control.admin_stimuli import PolicySet as PolicySet
from dlq_master.control.admin_stimuli import RefreshUser as RefreshUser
from dlq_master.control.admin_stimuli import RevokeToken as RevokeToken
from dlq_master.control.admin_stimuli import SetNodeFlags as SetNodeFlags
from dlq_master.control.admin_stimuli import SetNodeLabels as SetNodeLabels
from dlq_master.control.admin_stimuli import SetPolicy as SetPolicy
from dlq_master.control.admin_stimuli import SetTeam as SetTeam
from dlq_master.control.admin_stimuli import SetUser as SetUser
from dlq_master.control.admin_stimuli import TeamSet as TeamSet
from dlq_master.control.admin_stimuli import UserDeleted as UserDeleted
from dlq_master.control.admin_stimuli import UseToken as UseToken
from dlq_master.control.caller import Caller as Caller
from dlq_master.control.job_stimuli import SAME as SAME
from dlq_master.control.job_stimuli import AskedArray as AskedArray
from dlq_master.control.job_stimuli import AskedDeadline as AskedDeadline
from dlq_master.control.job_stimuli import AskedDependency as AskedDependency
from dlq_master.control.job_stimuli import AskedLateness as AskedLateness
from dlq_master.control.job_stimuli import AskedTerm as AskedTerm
from dlq_master.control.job_stimuli import CancelJob as CancelJob
from dlq_master.control.job_stimuli import CheckpointJob as CheckpointJob
from dlq_master.control.job_stimuli import Explained as Explained
from dlq_master.control.job_stimuli import ExplainJob as ExplainJob
from dlq_master.control.job_stimuli import FieldChange as FieldChange
from dlq_master.control.job_stimuli import HoldJob as HoldJob
from dlq_master.control.job_stimuli import JobEdit as JobEdit
from dlq_master.control.job_stimuli import PauseJob as PauseJob
from dlq_master.control.job_stimuli import ReleaseJob as ReleaseJob
from dlq_master.control.job_stimuli import RequeueJob as RequeueJob
from dlq_master.control.job_stimuli import ResumeJob as ResumeJob
from dlq_master.control.job_stimuli import Same as Same
from dlq_master.control.job_stimuli import SignalJob as SignalJob
from dlq_master.control.job_stimuli import SubmitJob as SubmitJob
from dlq_master.control.job_stimuli import Submitted as Submitted
from dlq_master.control.job_stimuli import UpdatedJob as UpdatedJob
from dlq_master.control.job_stimuli import UpdateJob as UpdateJob
from dlq_master.control.loan_stimuli import LendServers as LendServers
from dlq_master.control.loan_stimuli import LookAtGpus as LookAtGpus
from dlq_master.control.loan_stimuli import ReclaimServers as ReclaimServers
from dlq_master.control.loan_stimuli import SwitchLoans as SwitchLoans
from dlq_master.control.loan_stimuli import TakeLook as TakeLook
from dlq_master.control.node_stimuli import AgentInstance as AgentInstance
from dlq_master.control.node_stimuli import AnnounceMaintenance as AnnounceMaintenance
from dlq_master.control.node_stimuli import CloseSession as CloseSession
from dlq_master.control.node_stimuli import CommandDone as CommandDone
from dlq_master.control.node_stimuli import Heartbeat as Heartbeat
from dlq_master.control.node_stimuli import Launch as Launch
from dlq_master.control.node_stimuli import Maintenance as Maintenance
from dlq_master.control.node_stimuli import Opened as Opened
from dlq_master.control.node_stimuli import OpenSession as OpenSession
from dlq_master.control.node_stimuli import RankReports as RankReports
from dlq_master.control.node_stimuli import ReportedCheckpoint as ReportedCheckpoint
from dlq_master.control.node_stimuli import ReportedPhase as ReportedPhase
from dlq_master.control.node_stimuli import ReportedProgress as ReportedProgress
from dlq_master.control.node_stimuli import ReportedRank as ReportedRank
from dlq_master.control.node_stimuli import Save as Save
from dlq_master.control.node_stimuli import Signal as Signal
from dlq_master.control.node_stimuli import Stop as Stop
from dlq_master.control.node_stimuli import TakeEvidence as TakeEvidence
from dlq_master.control.node_stimuli import ToldDisk as ToldDisk
from dlq_master.control.node_stimuli import ToldGpu as ToldGpu
from dlq_master.control.node_stimuli import ToldSymptom as ToldSymptom
from dlq_master.control.pool_stimuli import AnnounceLeave as AnnounceLeave
from dlq_master.control.pool_stimuli import ProviderTold as ProviderTold
from dlq_master.control.pool_stimuli import StopMachines as StopMachines
from dlq_master.planner.plans import Answer
from dlq_master.store.batch import JoinToken as JoinToken
from dlq_master.store.batch import User as User
from dlq_master.store.tenants import Reservation as Reservation
from dlq_master.store.tenants import Team as Team
from dlq_master.store.tenants import Waited as Waited


@dataclass(frozen=True, slots=True)
class Tick:
    """The metronome: `schedule`, `leases`, `compact`, `backup`. Not awaited."""

    name: str


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The planner has answered, or has failed to. Not awaited."""

    answer: Answer


JobEditing: TypeAlias = (
    CancelJob
    | HoldJob
    | ReleaseJob
    | PauseJob
    | ResumeJob
    | UpdateJob
    | RequeueJob
    | SignalJob
    | CheckpointJob
)
JobStimulus: TypeAlias = SubmitJob | JobEditing | ExplainJob
NodeStimulus: TypeAlias = (
    OpenSession
    | CloseSession
    | Heartbeat
    | RankReports
    | TakeEvidence
    | TakeLook
    | AnnounceLeave
    | CommandDone
    | AnnounceMaintenance
)
AdminStimulus: TypeAlias = (
    CreateToken
    | RevokeToken
    | UseToken
    | FenceNode
    | SetNodeFlags
    | SetNodeLabels
    | AcceptGpus
    | ClearGpuConditions
    | ForgetNode
    | SetUser
    | RefreshUser
    | DeleteUser
    | SetPolicy
    | SetTeam
    | DeleteTeam
    | LendServers
    | StopMachines
    | ReclaimServers
    | SwitchLoans
    | CreateReservation
    | CancelReservation
)
Stimulus: TypeAlias = JobStimulus | NodeStimulus | AdminStimulus | Tick | PlanMade | ProviderTold
Command: TypeAlias = Launch | Stop | Signal | Save | LookAtGpus
