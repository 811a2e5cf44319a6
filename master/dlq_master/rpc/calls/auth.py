"""The door: it takes the caller's identity from the client certificate, and from nothing else.

TLS has proven that our CA signed the certificate. The door checks that its holder is still known
with that role, and that the role may call the method.

A web server names the user for whom it calls. Its own certificate proves that it may. The user is
then the caller in rights, limits and answers, and the audit names both. It may name the user's
groups too; the master decides which roles and teams these give (group_grants.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dlq_common.clock import Clock
from dlq_common.errors import PermissionDenied, Unauthenticated
from dlq_common.identity.acting import ActsFor, acts_for
from dlq_common.identity.facts import LIFETIME_S
from dlq_common.identity.pki import PEOPLE, CertifiedIdentity, Role, fingerprint, parse_identity
from dlq_master.control.stimuli import Caller, User
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node
from dlq_master.rpc.calls.call import Call, Context
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.store.tables.revocations import NODE, SERIAL, USER, Revocation, subject_of
from dlq_master.store.tables.tenants import GivenGrant, serial_in

if TYPE_CHECKING:
    from dlq_master.rpc.calls.signs import Signs

# Dates in certificates are whole seconds.
_ROUNDING_S = 1.0
_EXACT_S = 0.001  # of the times that a service tells


class LetIn(NamedTuple):
    """The present owner of a name (model/jobs/person.py), and since when."""

    person: str
    since_s: float


class Members(Protocol):
    """The known users, nodes and services."""

    def user(self, name: str) -> User | None: ...
    def node(self, node_id: NodeId) -> Node | None: ...
    @property
    def revocations(self) -> Mapping[str, Revocation]: ...
    @property
    def grants(self) -> Mapping[str, GivenGrant]: ...


class Door:
    """Lets a call in, or raises Unauthenticated or PermissionDenied."""

    def __init__(
        self,
        cluster: str,
        members: Callable[[], Members],
        clock: Clock,
        web_may_act_for: Collection[str],
        *,
        certificates: bool = False,
        grants: GroupGrants = GroupGrants(),  # noqa: B008 - it is a value
    ) -> None:
        """`web_may_act_for`: the roles of users for whom a web server may call. `certificates`:
        whether certificates that it got for users count. `grants`: the grants of groups there.
        """
        self.signs: Signs | None = None  # None: each certificate that TLS believes counts
        self.refusal: Callable[[User], str] = lambda _user: ""  # of a user, by the host's accounts
        self.looks: Callable[[str], Awaitable[object] | None] = lambda _name: None  # at the host
        self._cluster = cluster
        self._members = members
        self._clock = clock
        self._web_may_act_for = frozenset(web_may_act_for)
        self._certificates = certificates
        self._grants = grants

    def let_in(self, call: Call) -> None:
        """Set the call's identity and caller, then refuse it or let it pass."""
        identity = call.identity = identity_of(call.context)
        if (wanted := acts_for(call.context.invocation_metadata() or ())) is not None:
            identity = call.identity = self._acting(identity, wanted)
        teams = self._grants.teams_of(identity.groups) if identity.groups else ()
        if identity.role is Role.GUEST:
            grant = self._grant_of(identity)
            teams = ((grant.team, f"grant {grant.serial}"),)
        known = self.check_member(identity)
        call.let_in = Caller(identity.name, identity.role.value, *known, teams)
        if identity.by is not None and call.method.in_person:
            raise PermissionDenied(
                f"{call.path.rsplit('/', 1)[-1]} needs the user's own certificate",
                user=identity.name,
                hint="the command line of dlq has it",
            )
        if identity.by is None and call.method.by_service:
            raise PermissionDenied(
                f"{call.path.rsplit('/', 1)[-1]} is for a service that acts for its user",
                user=identity.name,
                hint="`dlq login` gets a certificate, and renews it",
            )
        if identity.role not in call.method.roles:
            raise PermissionDenied(
                f"the role {identity.role} may not call {call.path.rsplit('/', 1)[-1]}",
                user=identity.name,
                needs=" or ".join(sorted(call.method.roles)) or "nobody",
            )

    def account_due(self, call: Call) -> Awaitable[object] | None:
        """The look-up of the caller's account, if it is due. The call waits for it, and must be let
        in again.
        """
        return None if call.caller.role == Role.NODE else self.looks(call.caller.name)

    def check_member(self, identity: CertifiedIdentity) -> LetIn:
        """Unauthenticated: the holder is not known here, now, with this role.

        Long streams ask again from time to time, so a removed user is refused at once.
        """
        if identity.cluster != self._cluster:
            raise Unauthenticated(f"a certificate of the cluster {identity.cluster!r}, not of this")
        if identity.by is not None:
            self._check_acting(identity, identity.by)
        elif self._clock.now_s() >= identity.not_after_s:
            raise Unauthenticated("the certificate has expired", hint="dlq login")
        elif identity.role is Role.GUEST:
            self._grant_of(identity)
        elif identity.through:
            self._check_through(identity)
        if self.signs is not None:
            shown = identity.by or identity
            acted = identity.by is not None and identity.issuer != ""
            if not self.signs.counts(shown) or (acted and not self.signs.counts(identity)):
                raise Unauthenticated(
                    "the certificate is of a former CA of the cluster", hint="dlq login"
                )
            self.signs.saw(shown, self._clock.now_s())
        if revocations := self._members().revocations:
            _check_revoked(identity, revocations)
        person, known_since_s = self._known(identity)
        # A name may be given again; certificates of its former owner stay worthless.
        slack_s = _ROUNDING_S if identity.by is None else _EXACT_S
        if identity.issued_s + slack_s < known_since_s:
            raise Unauthenticated(
                f"the certificate is of an earlier {identity.name}", hint="dlq login"
            )
        return LetIn(person, known_since_s)

    def _acting(self, service: CertifiedIdentity, wanted: ActsFor) -> CertifiedIdentity:
        """The identity of the user for whom this service calls, as if the user had a certificate.

        Only the service's role has been checked so far.
        """
        if service.role is not Role.WEB:
            raise PermissionDenied(
                f"the role {service.role} acts for nobody else", user=service.name, needs="web"
            )
        user = self._members().user(wanted.name)
        since_s = self._clock.now_s() if wanted.since_s is None else wanted.since_s
        groups = self._grants.known(wanted.groups)
        present = Role.USER if user is None else self._grants.role(user.role, groups)
        serial, _, issuer = wanted.shown.partition(".")
        return CertifiedIdentity(
            name=wanted.name,
            role=_role(wanted.role or present),
            cluster=service.cluster,
            serial=serial or service.serial,
            not_after_s=since_s + LIFETIME_S,
            by=service,
            groups=groups,
            issuer=issuer,
        )

    def _check_acting(self, identity: CertifiedIdentity, service: CertifiedIdentity) -> None:
        """Check that this service is still known, and may act for users of this role."""
        self.check_member(service)
        if identity.role.value not in self._web_may_act_for:
            raise PermissionDenied(
                f"{service.name} may not act for the role {identity.role}",
                user=identity.name,
                hint="an operator may grant it: [identity] web_may_act_for in master.toml",
            )

    def _check_through(self, identity: CertifiedIdentity) -> None:
        """Check that certificates from this service still count.

        It must still be known, and may give them to users of this role.
        """
        service = self._members().user(identity.through)
        since_s = identity.issued_s + _ROUNDING_S
        if service is None or service.role != Role.WEB or since_s < service.created_time_s:
            what = f"this certificate came through {identity.through}, which serves no more"
        elif not self._certificates or identity.role.value not in self._web_may_act_for:
            what = f"certificates through {identity.through} count no more for this role"
        else:
            return
        raise Unauthenticated(what, hint="dlq login")

    def _grant_of(self, identity: CertifiedIdentity) -> GivenGrant:
        """The grant of a guest. Unauthenticated: guests may not come under it now."""
        serial = serial_in(identity.through)
        grant, user = self._members().grants.get(serial), self._members().user(identity.name)
        if grant is None or (user is not None and user.grant != serial):
            raise Unauthenticated(
                f"{identity.name} comes under another grant by now", hint="dlq login --grant"
            )
        words = grant.refusal(self._clock.now_s())
        if words:
            raise Unauthenticated(words, hint="the operators of the two clusters agree on another")
        return grant

    def _known(self, identity: CertifiedIdentity) -> LetIn:
        members = self._members()
        if identity.role is Role.NODE:
            node = members.node(NodeId(identity.name))
            if node is None:
                raise Unauthenticated(f"there is no node {identity.name} (any more)")
            return LetIn("", node.registered_time_s)
        user = members.user(identity.name) if identity.role in PEOPLE else None
        if user is None:
            raise Unauthenticated(f"there is no user {identity.name} (any more)")
        if why := self.refusal(user):
            raise Unauthenticated(
                f"{identity.name} may do nothing here any more: {why}",
                hint=f"an admin decides about the jobs: dlq admin user del {identity.name}",
            )
        role = user.role
        if identity.groups:
            role = self._grants.role(role, identity.groups)
        if role != identity.role:
            raise Unauthenticated(
                f"the role of {identity.name} has changed to {role}", hint="dlq login"
            )
        return LetIn(user.key, user.created_time_s)


def _check_revoked(identity: CertifiedIdentity, rows: Mapping[str, Revocation]) -> None:
    kind = NODE if identity.role is Role.NODE else USER
    row = rows.get(subject_of(SERIAL, identity.serial))
    if row is None:
        row = rows.get(subject_of(kind, identity.name))
        through = rows.get(subject_of(USER, identity.through)) if identity.through else None
        if not any(one and identity.issued_s < one.good_from_s for one in (row, through)):
            return
    anew = "dlq-nodeagent join, with a new token" if kind == NODE else "dlq login"
    raise Unauthenticated(f"the certificate of {identity.name} was revoked", hint=anew)


def _role(word: str) -> Role:
    try:
        return Role(word)
    except ValueError:
        raise PermissionDenied("nobody has such a role") from None


def identity_of(context: Context) -> CertifiedIdentity:
    """The identity in the client certificate of this call's connection."""
    return _parsed(_certificate(context))


def fingerprint_of(context: Context) -> str:
    """The SHA-256 of that certificate, hexadecimal."""
    return fingerprint(_certificate(context))


def _certificate(context: Context) -> bytes:
    certificates = list(context.auth_context().get("x509_pem_cert", ()))
    if len(certificates) != 1:
        raise Unauthenticated("no client certificate")
    return certificates[0]


@lru_cache(maxsize=4096)
def _parsed(certificate: bytes) -> CertifiedIdentity:
    return parse_identity(certificate)
