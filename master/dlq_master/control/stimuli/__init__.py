"""Everything that can enter the loop's inbox, and what each of them is answered with."""

from dataclasses import dataclass
from typing import TypeAlias

from dlq_master.control.stimuli.admin import AcceptGpus as AcceptGpus
from dlq_master.control.stimuli.admin import AddNotifyRule as AddNotifyRule
from dlq_master.control.stimuli.admin import AdmitGuest as AdmitGuest
from dlq_master.control.stimuli.admin import CancelReservation as CancelReservation
from dlq_master.control.stimuli.admin import ClearGpuConditions as ClearGpuConditions
from dlq_master.control.stimuli.admin import CreateReservation as CreateReservation
from dlq_master.control.stimuli.admin import CreateToken as CreateToken
from dlq_master.control.stimuli.admin import DeleteTeam as DeleteTeam
from dlq_master.control.stimuli.admin import DeleteUser as DeleteUser
from dlq_master.control.stimuli.admin import Fenced as Fenced
from dlq_master.control.stimuli.admin import FenceNode as FenceNode
from dlq_master.control.stimuli.admin import ForgetNode as ForgetNode
from dlq_master.control.stimuli.admin import GrantRevoked as GrantRevoked
from dlq_master.control.stimuli.admin import GrantsUsed as GrantsUsed
from dlq_master.control.stimuli.admin import KeepGrant as KeepGrant
from dlq_master.control.stimuli.admin import MakeGrant as MakeGrant
from dlq_master.control.stimuli.admin import PolicySet as PolicySet
from dlq_master.control.stimuli.admin import RefreshUser as RefreshUser
from dlq_master.control.stimuli.admin import RemoveNotifyRule as RemoveNotifyRule
from dlq_master.control.stimuli.admin import RevokeCertificates as RevokeCertificates
from dlq_master.control.stimuli.admin import RevokeGrant as RevokeGrant
from dlq_master.control.stimuli.admin import RevokeToken as RevokeToken
from dlq_master.control.stimuli.admin import SetNodeFlags as SetNodeFlags
from dlq_master.control.stimuli.admin import SetNodeLabels as SetNodeLabels
from dlq_master.control.stimuli.admin import SetPolicy as SetPolicy
from dlq_master.control.stimuli.admin import SetTeam as SetTeam
from dlq_master.control.stimuli.admin import SetUser as SetUser
from dlq_master.control.stimuli.admin import ShareAuthority as ShareAuthority
from dlq_master.control.stimuli.admin import StepDown as StepDown
from dlq_master.control.stimuli.admin import TeamSet as TeamSet
from dlq_master.control.stimuli.admin import TestNotifyRule as TestNotifyRule
from dlq_master.control.stimuli.admin import UserDeleted as UserDeleted
from dlq_master.control.stimuli.admin import UseToken as UseToken
from dlq_master.control.stimuli.caller import Answered as Answered
from dlq_master.control.stimuli.caller import Caller as Caller
from dlq_master.control.stimuli.caller import CallerRequest as CallerRequest
from dlq_master.control.stimuli.caller import Stimulus as Stimulus
from dlq_master.control.stimuli.jobs import SAME as SAME
from dlq_master.control.stimuli.jobs import AskedArray as AskedArray
from dlq_master.control.stimuli.jobs import AskedDeadline as AskedDeadline
from dlq_master.control.stimuli.jobs import AskedDependency as AskedDependency
from dlq_master.control.stimuli.jobs import AskedLateness as AskedLateness
from dlq_master.control.stimuli.jobs import AskedMember as AskedMember
from dlq_master.control.stimuli.jobs import AskedTerm as AskedTerm
from dlq_master.control.stimuli.jobs import AttendJob as AttendJob
from dlq_master.control.stimuli.jobs import CancelJob as CancelJob
from dlq_master.control.stimuli.jobs import CheckNodes as CheckNodes
from dlq_master.control.stimuli.jobs import CheckpointJob as CheckpointJob
from dlq_master.control.stimuli.jobs import EditMany as EditMany
from dlq_master.control.stimuli.jobs import Explained as Explained
from dlq_master.control.stimuli.jobs import ExplainJob as ExplainJob
from dlq_master.control.stimuli.jobs import FieldChange as FieldChange
from dlq_master.control.stimuli.jobs import HoldJob as HoldJob
from dlq_master.control.stimuli.jobs import HookedUpdate as HookedUpdate
from dlq_master.control.stimuli.jobs import HookResult as HookResult
from dlq_master.control.stimuli.jobs import JobEdit as JobEdit
from dlq_master.control.stimuli.jobs import ManyEdited as ManyEdited
from dlq_master.control.stimuli.jobs import PauseJob as PauseJob
from dlq_master.control.stimuli.jobs import ReleaseJob as ReleaseJob
from dlq_master.control.stimuli.jobs import RequeueJob as RequeueJob
from dlq_master.control.stimuli.jobs import Respec as Respec
from dlq_master.control.stimuli.jobs import ResumeJob as ResumeJob
from dlq_master.control.stimuli.jobs import Same as Same
from dlq_master.control.stimuli.jobs import SignalJob as SignalJob
from dlq_master.control.stimuli.jobs import SubmitGroup as SubmitGroup
from dlq_master.control.stimuli.jobs import SubmitJob as SubmitJob
from dlq_master.control.stimuli.jobs import SubmitMany as SubmitMany
from dlq_master.control.stimuli.jobs import Submitted as Submitted
from dlq_master.control.stimuli.jobs import TakeHookResults as TakeHookResults
from dlq_master.control.stimuli.jobs import UpdatedJob as UpdatedJob
from dlq_master.control.stimuli.jobs import UpdateJob as UpdateJob
from dlq_master.control.stimuli.jobs import UpdateNote as UpdateNote
from dlq_master.control.stimuli.jobs import WithdrawSubmission as WithdrawSubmission
from dlq_master.control.stimuli.loans import LookAtGpus as LookAtGpus
from dlq_master.control.stimuli.loans import SwitchLoans as SwitchLoans
from dlq_master.control.stimuli.loans import TakeLook as TakeLook
from dlq_master.control.stimuli.machines import AnnounceLeave as AnnounceLeave
from dlq_master.control.stimuli.machines import ProviderTold as ProviderTold
from dlq_master.control.stimuli.machines import StopMachines as StopMachines
from dlq_master.control.stimuli.nodes import AgentInstance as AgentInstance
from dlq_master.control.stimuli.nodes import AnnounceMaintenance as AnnounceMaintenance
from dlq_master.control.stimuli.nodes import CloseSession as CloseSession
from dlq_master.control.stimuli.nodes import CommandDone as CommandDone
from dlq_master.control.stimuli.nodes import Heartbeat as Heartbeat
from dlq_master.control.stimuli.nodes import Launch as Launch
from dlq_master.control.stimuli.nodes import Maintenance as Maintenance
from dlq_master.control.stimuli.nodes import Opened as Opened
from dlq_master.control.stimuli.nodes import OpenSession as OpenSession
from dlq_master.control.stimuli.nodes import RankReports as RankReports
from dlq_master.control.stimuli.nodes import ReportedCheckpoint as ReportedCheckpoint
from dlq_master.control.stimuli.nodes import ReportedPhase as ReportedPhase
from dlq_master.control.stimuli.nodes import ReportedProgress as ReportedProgress
from dlq_master.control.stimuli.nodes import ReportedRank as ReportedRank
from dlq_master.control.stimuli.nodes import Resume as Resume
from dlq_master.control.stimuli.nodes import Save as Save
from dlq_master.control.stimuli.nodes import Signal as Signal
from dlq_master.control.stimuli.nodes import Stop as Stop
from dlq_master.control.stimuli.nodes import Suspend as Suspend
from dlq_master.control.stimuli.nodes import TakeEvidence as TakeEvidence
from dlq_master.control.stimuli.nodes import ToldDisk as ToldDisk
from dlq_master.control.stimuli.nodes import ToldGpu as ToldGpu
from dlq_master.control.stimuli.nodes import ToldSymptom as ToldSymptom
from dlq_master.planner.plans import Answer
from dlq_master.store.batch import JoinToken as JoinToken
from dlq_master.store.batch import User as User
from dlq_master.store.tables.notify_rules import NotifyRule as NotifyRule
from dlq_master.store.tables.revocations import Revocation as Revocation
from dlq_master.store.tables.tenants import Reservation as Reservation
from dlq_master.store.tables.tenants import Team as Team
from dlq_master.store.tables.tenants import Waited as Waited


@dataclass(frozen=True, slots=True)
class Tick(Stimulus):
    """The metronome: `schedule`, `leases`, `compact`, `backup`. Not awaited."""

    name: str


@dataclass(frozen=True, slots=True)
class PlanMade(Stimulus):
    """The planner has answered, or has failed to. Not awaited."""

    answer: Answer


Command: TypeAlias = Launch | Stop | Signal | Save | Suspend | Resume | LookAtGpus
