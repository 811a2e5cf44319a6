"""`dlq admin`: commands of operators and admins."""

from __future__ import annotations

import click

from dlq_cli.lazy import Lazy, LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "token": Lazy("dlq_cli.commands.admin.token:token", "Join tokens for new nodes."),
        "node": Lazy("dlq_cli.commands.admin.node:node", "Drain, fence and forget nodes."),
        "check": Lazy("dlq_cli.commands.cluster.checks:check", "Measure nodes, and see results."),
        "user": Lazy("dlq_cli.commands.admin.user:user", "Users and their rights."),
        "revoke": Lazy("dlq_cli.commands.admin.revoke:revoke", "Make certificates worthless."),
        "grants": Lazy("dlq_cli.commands.many.grants:grants", "GPUs lent to other organisations."),
        "ca": Lazy("dlq_cli.commands.admin.ca:ca", "Change the CA of the cluster."),
        "leader": Lazy("dlq_cli.commands.admin.leader:leader", "Which master leads."),
        "team": Lazy("dlq_cli.commands.admin.team:team", "Teams, their quotas and members."),
        "reserve": Lazy("dlq_cli.commands.admin.reserve:reserve", "Keep nodes free for a while."),
        "reservation": Lazy(
            "dlq_cli.commands.admin.reserve:reservation", "List and cancel reservations."
        ),
        "loan": Lazy("dlq_cli.commands.admin.loan:loan", "Servers that the inference side lends."),
        "reclaim": Lazy("dlq_cli.commands.admin.loan:reclaim", "Take lent servers back."),
        "pool": Lazy("dlq_cli.commands.admin.pool:pool", "Machines that are rented."),
        "policy": Lazy("dlq_cli.commands.admin.policy:policy", "Which policy decides."),
        "estimates": Lazy(
            "dlq_cli.commands.admin.estimates:estimates", "How good start ranges are."
        ),
        "hooks": Lazy("dlq_cli.commands.cluster.hooks:hooks", "Your own rules in Python."),
        "audit": Lazy(
            "dlq_cli.commands.admin.audit:audit", "Changes and their authors, and denied calls."
        ),
        "profile": Lazy(
            "dlq_cli.commands.admin.profile:profile", "On what the master spends its time."
        ),
    },
)
def admin() -> None:
    """For operators and admins. Every call is in the audit log.

    \b
    dlq admin token create --node gpu07      let a new node join
    dlq admin node drain gpu07 --reason fan  let no new work start there
    dlq admin check run gpu07                does it compute and write as it should
    dlq admin user set alice --role operator --uid 1000 --gid 1000
    dlq admin team set vision --gpus 64      how many GPUs a team has by right
    dlq admin loan --count 4                 use servers of the inference side
    dlq admin reclaim --count 2 --plan       what taking two back would mean
    dlq admin pool list                      what is rented, and what it costs
    dlq admin policy show                    which policy decides who gets GPUs
    dlq admin audit --since today            who changed what
    dlq admin profile                        on what the master spends its time
    """
