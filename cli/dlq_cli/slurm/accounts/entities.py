"""The columns and rows of `sacctmgr show`, for each entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import team_pb2
from dlq_cli.app import App
from dlq_cli.slurm.accounts.associations import ROOT, Association, SeenUser
from dlq_cli.slurm.accounts.table import AccountColumn
from dlq_cli.slurm.jobs.seen import QOS

TRES = (
    ("cpu", "", 1), ("mem", "", 2), ("energy", "", 3), ("node", "", 4), ("billing", "", 5),
    ("fs", "disk", 6), ("vmem", "", 7), ("pages", "", 8), ("gres", "gpu", 1001),
)  # fmt: skip
_ROLES = {"operator": "Operator", "admin": "Administrator"}


class Holder(NamedTuple):
    """A row of accounts and users: the row itself, and its association where that is asked for."""

    name: str
    default: str  # of a user
    role: str  # of a user
    link: Association | None


def _limit(field: str, of_user: bool | None = None) -> Callable[[Association], str]:
    """A rule of the team or of the member; `of_user`: of members alone, or of teams alone."""

    def text(row: Association) -> str:
        if of_user is not None and bool(row.user) is not of_user:
            return ""
        rules: team_pb2.TeamRules = row.rules
        if not rules.HasField(field):  # type: ignore[arg-type]
            return ""
        number = getattr(rules, field)
        return f"gres/gpu={number}" if field == "gpu_limit" else str(number)

    return text


def _none(row: object) -> str:
    return ""


def _always(text: str) -> Callable[[object], str]:
    return lambda row: text


def _column(
    heading: str, width: int, text: Callable[[Association], str] = _none
) -> AccountColumn[Association]:
    return AccountColumn(heading, width, text)


LINK: Mapping[str, AccountColumn[Association]] = {
    "cluster": _column("Cluster", 10, lambda row: row.cluster),
    "account": _column("Account", 10, lambda row: row.account),
    "user": _column("User", 10, lambda row: row.user),
    "partition": _column("Partition", 10),
    "share": _column("Share", 9, lambda row: f"{row.share:g}"),
    "fairshare": _column("Share", 9, lambda row: f"{row.share:g}"),
    "priority": _column("Priority", 10),
    "grpjobs": _column("GrpJobs", 7, _limit("running_job_limit", False)),
    "grptres": _column("GrpTRES", 13, _limit("gpu_limit", False)),
    "grpsubmit": _column("GrpSubmit", 9, _limit("queued_job_limit", False)),
    "grpwall": _column("GrpWall", 11),
    "grptresmins": _column("GrpTRESMins", 13),
    "maxjobs": _column("MaxJobs", 7, _limit("running_job_limit", True)),
    "maxtres": _column("MaxTRES", 13, _limit("gpu_limit", True)),
    "maxtrespernode": _column("MaxTRESPerNode", 14),
    "maxsubmit": _column("MaxSubmit", 9, _limit("queued_job_limit", True)),
    "maxwall": _column("MaxWall", 11),
    "maxtresmins": _column("MaxTRESMins", 13),
    "qos": _column("QOS", 20, _always(QOS)),
    "defaultqos": _column("Def QOS", 9),
    "grptresrunmin": _column("GrpTRESRunMin", 13),
    "parentname": _column("ParentName", 10, lambda row: row.parent),
    "maxnodes": _column("MaxNodes", 8),
    "maxcpus": _column("MaxCPUs", 8),
    "maxcpumins": _column("MaxCPUMins", 11),
    "grpnodes": _column("GrpNodes", 8),
    "grpcpus": _column("GrpCPUs", 8),
    "grpmem": _column("GrpMem", 7),
    "grpcpumins": _column("GrpCPUMins", 11),
}
LINK_DEFAULT = (
    "cluster,account,user,partition,share,priority,grpjobs,grptres,grpsubmit,grpwall,grptresmins,"
    "maxjobs,maxtres,maxtrespernode,maxsubmit,maxwall,maxtresmins,qos,defaultqos,grptresrunmin"
)


def _described(row: Holder) -> str:
    return "default root account" if row.name == ROOT else row.name


def _linked() -> dict[str, AccountColumn[Holder]]:
    """The columns of associations for rows of accounts and users."""

    def of(column: AccountColumn[Association]) -> AccountColumn[Holder]:
        return AccountColumn(
            column.heading, column.width, lambda row: column.text(row.link) if row.link else ""
        )

    return {name: of(column) for name, column in LINK.items()}


ACCOUNT: Mapping[str, AccountColumn[Holder]] = {
    **_linked(),
    "account": AccountColumn("Account", 10, lambda row: row.name),
    "name": AccountColumn("Account", 10, lambda row: row.name),
    "description": AccountColumn("Descr", 20, _described),
    "organization": AccountColumn("Org", 20, lambda row: row.name),
    "coordinators": AccountColumn("Coord Accounts", 20, _none),
}
ACCOUNT_DEFAULT = "account,description,organization"
ACCOUNT_LINKED = (
    ",cluster,parentname,user,share,priority,grpjobs,grpnodes,grpcpus,grpmem,grpsubmit,grpwall,"
    "grpcpumins,maxjobs,maxnodes,maxcpus,maxsubmit,maxwall,maxcpumins,qos,defaultqos"
)
USER: Mapping[str, AccountColumn[Holder]] = {
    **_linked(),
    "user": AccountColumn("User", 10, lambda row: row.name),
    "name": AccountColumn("User", 10, lambda row: row.name),
    "defaultaccount": AccountColumn("Def Acct", 10, lambda row: row.default),
    "adminlevel": AccountColumn("Admin", 9, lambda row: row.role),
    "coordinators": AccountColumn("Coord Accounts", 20, _none),
}
USER_DEFAULT = "user,defaultaccount,adminlevel"
USER_LINKED = (
    ",cluster,account,partition,share,priority,maxjobs,maxnodes,maxcpus,maxsubmit,maxwall,"
    "maxcpumins,qos,defaultqos"
)
_QOS_EMPTY = {
    "Preempt": 10, "PreemptExemptTime": 19, "Flags": 40, "UsageThres": 10, "GrpTRES": 13,
    "GrpTRESMins": 13, "GrpTRESRunMin": 13, "GrpJobs": 7, "GrpSubmit": 9, "GrpWall": 11,
    "MaxTRES": 13, "MaxTRESPerNode": 14, "MaxTRESMins": 13, "MaxWall": 11, "MaxTRESPU": 13,
    "MaxJobsPU": 9, "MaxSubmitPU": 11, "MaxTRESPA": 13, "MaxJobsPA": 9, "MaxSubmitPA": 11,
    "MinTRES": 13,
}  # fmt: skip
QOS_COLUMNS: Mapping[str, AccountColumn[str]] = {
    "name": AccountColumn("Name", 10, str),
    "priority": AccountColumn("Priority", 10, _always("0")),
    "gracetime": AccountColumn("GraceTime", 10, _always("00:00:00")),
    "preemptmode": AccountColumn("PreemptMode", 11, _always("cluster")),
    "usagefactor": AccountColumn("UsageFactor", 11, _always("1.000000")),
    "id": AccountColumn("ID", 6, _always("1")),
    "description": AccountColumn("Descr", 20, _always("Normal QOS default")),
    **{
        heading.lower(): AccountColumn(heading, width, _none)
        for heading, width in _QOS_EMPTY.items()
    },
}
QOS_DEFAULT = (
    "name,priority,gracetime,preempt,preemptexempttime,preemptmode,flags,usagethres,usagefactor,"
    "grptres,grptresmins,grptresrunmin,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,"
    "maxtresmins,maxwall,maxtrespu,maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa,mintres"
)
TRES_COLUMNS: Mapping[str, AccountColumn[tuple[str, str, int]]] = {
    "type": AccountColumn("Type", 8, lambda row: row[0]),
    "name": AccountColumn("Name", 15, lambda row: row[1]),
    "id": AccountColumn("ID", 6, lambda row: str(row[2])),
}


def accounts_rows(rows: Sequence[Association], *, linked: bool) -> list[Holder]:
    """By name; `linked`: one for each association."""
    heads = sorted((row for row in rows if not row.user), key=lambda row: row.account)
    found = []
    for head in heads:
        links: Sequence[Association | None] = [None]
        if linked:
            links = [row for row in rows if row.account == head.account]
        found += [Holder(head.account, "", "", link) for link in links]
    return found


def users_rows(app: App, users: Sequence[SeenUser], *, linked: bool) -> list[Holder]:
    """The role is known of the caller alone."""
    own = app.connection().identity
    found = []
    for user in users:
        role = _ROLES.get(own.role, "None") if user.name == own.user else "None"
        links: Sequence[Association | None] = list(user.rows) if linked and user.rows else [None]
        found += [Holder(user.name, user.default, role, link) for link in links]
    return found
