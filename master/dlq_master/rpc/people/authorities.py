"""The signing authority, and for a while the next one beside it: a change of the CA while running.

1. `begin`: the next authority signs all new certificates, and all members are told to renew. Both
   roots are trusted. The master still shows a certificate of the present authority, which every
   member knows.
2. A member with a certificate of the next authority knows both roots.
3. `finish`: the next authority becomes the present one. The former root and its certificates are
   void, and members renew once more to forget it.

All of it is files of the state directory, written before anything changes. So a restarted master
goes on where it was. A silent agent renews once its line is back, while both roots count.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from dlq_common.errors import ConfigError, IllegalTransition
from dlq_common.identity.files import SEEDS_FILE, write_private, write_public
from dlq_common.identity.pki import Authority, CertifiedIdentity, Role, fingerprint
from dlq_common.identity.private_files import read_private

KEY: Final = "ca.key"
CERTIFICATE: Final = "ca.crt"
STAGED: Final = "ca.staged.pem"  # an intermediate that was imported (dlq-master ca import)
NEXT: Final = "ca.next.pem"  # while both count
DONE: Final = "ca.done.pem"  # while its parts become the two files above
SEEDS: Final = SEEDS_FILE
_DERIVED: Final = {"pools": b"dlq pools\0", "checkpoints": b"dlq checkpoints\0"}
PAIR_KEY: Final = "pair.key"  # of several masters (shared_authority.py)
FILES: Final = (KEY, CERTIFICATE, STAGED, NEXT, DONE, SEEDS)


class MemberSeen(NamedTuple):
    """When a member last came with a certificate of each authority; 0: never."""

    former_s: float = 0.0
    next_s: float = 0.0

    @property
    def follows(self) -> bool:
        """Whether it has a certificate of the next authority, and has not used a former
        one since.
        """
        return self.next_s > self.former_s


class SharedFiles(Protocol):
    """The copies of these files at other masters (`shared_authority.py`)."""

    def news(self) -> str | None:
        """The word to store in the database if other masters lack these files; None: they have
        them.
        """

    def stored(self, word: str) -> None:
        """The database has this word."""


class Authorities:
    """Signs as the authority that is to sign now. Its methods are those of `Authority`."""

    def __init__(self, state_dir: Path, cluster: str) -> None:
        """ConfigError: the CA is missing, readable by others, or another cluster's."""
        self._dir = state_dir
        self._begun = self._finished = ""  # by which requests
        self.seen: dict[tuple[str, str], MemberSeen] = {}
        self.shared: SharedFiles | None = None  # with other masters
        if (state_dir / DONE).exists():
            complete(state_dir)
        self.present = read_authority(state_dir, cluster)
        self.next = self._beside(NEXT, cluster)
        self.turned = (state_dir / SEEDS).exists()

    def noted(self, word: str | None) -> None:
        """The database has this state of the files for other masters; None: there was no news."""
        if self.shared is not None and word is not None:
            self.shared.stored(word)

    def reload(self) -> None:
        """Read the files again: another master has changed them."""
        self.__init__(self._dir, self.cluster)  # type: ignore[misc] # all of it is of the files

    # --- an authority -------------------------------------------------------------------------

    @property
    def cluster(self) -> str:
        return self.present.cluster

    @property
    def not_after_s(self) -> float:
        """The end of the authority that ends first."""
        return min(one.not_after_s for one in self._both())

    def sign_user(self, request: bytes, name: str, role: Role, now_s: float) -> bytes:
        """See Authority."""
        return self._signer.sign_user(request, name, role, now_s)

    def sign_user_of(
        self, service: str, request: bytes, name: str, role: Role, now_s: float, life_s: float
    ) -> bytes:
        """See Authority."""
        return self._signer.sign_user_of(service, request, name, role, now_s, life_s)

    def sign_node(self, request: bytes, node_id: str, now_s: float) -> bytes:
        """See Authority."""
        return self._signer.sign_node(request, node_id, now_s)

    def sign_master(self, request: bytes, now_s: float) -> bytes:
        """Signed by the present authority: members that have not renewed know no other."""
        return self.present.sign_master(request, now_s)

    def sign_exchange(self, request: bytes, now_s: float) -> bytes:
        """Signed by the present authority: other organisations pin its root."""
        return self.present.sign_exchange(request, now_s)

    def certificate_pem(self) -> bytes:
        """All trusted roots."""
        return b"".join(dict.fromkeys(one.certificate_pem() for one in self._both()))

    def pinned_pem(self) -> bytes:
        """See Authority."""
        return self.present.certificate_pem()

    def pins(self, seal: str) -> bool:
        """See Authority."""
        return any(one.pins(seal) for one in self._both())

    # --- the change ---------------------------------------------------------------------------

    def begun_by(self, request_id: str) -> bool:
        """Whether this request began the present change, since this master started."""
        return bool(request_id) and self._begun == request_id and self.next is not None

    def finished_by(self, request_id: str) -> bool:
        """Whether this request finished the last change, since this master started."""
        return bool(request_id) and self._finished == request_id

    def begin(self, now_s: float, request_id: str = "") -> None:
        """`prepare` and `adopt`, if no other master has to know."""
        self.adopt(self.prepare(now_s), request_id)

    def prepare(self, now_s: float) -> Authority:
        """Write the next authority to disk: an imported one, or a new root. It signs nothing yet.

        IllegalTransition: a change is under way.
        """
        if self.next is not None:
            raise IllegalTransition(
                "a change of the CA is on its way", hint="dlq admin ca status; dlq admin ca finish"
            )
        begun = self._beside(NEXT, self.cluster)  # by a request that failed behind this
        staged = self._beside(STAGED, self.cluster)
        made = begun or staged or Authority.create(self.cluster, now_s)
        self._keep_seeds()
        write_private(self._dir / NEXT, made.key_pem() + made.chain_pem())
        (self._dir / STAGED).unlink(missing_ok=True)
        return made

    def adopt(self, made: Authority, request_id: str = "") -> None:
        """Let the next authority sign, and tell all members to renew."""
        self.next, self.turned, self.seen = made, True, {}
        self._begun = request_id

    def finish(self, request_id: str = "") -> None:
        """Drop the former authority. IllegalTransition: no change is under way."""
        if self.next is None:
            raise IllegalTransition("no change of the CA is on its way", hint="dlq admin ca rotate")
        (self._dir / NEXT).rename(self._dir / DONE)
        complete(self._dir)
        self.present, self.next, self.seen = self.next, None, {}
        self._finished = request_id

    def counts(self, identity: CertifiedIdentity) -> bool:
        """Whether the authority that signed this certificate is trusted."""
        return not self.turned or identity.issuer in [one.key_id for one in self._both()]

    def is_former(self, identity: CertifiedIdentity) -> bool:
        """Whether its holder must renew, because another authority signs now."""
        return self.next is not None and identity.issuer != self.next.key_id

    def saw(self, identity: CertifiedIdentity, now_s: float) -> None:
        """Note that a member came with this certificate."""
        if self.next is None:
            return
        member = ("node" if identity.role is Role.NODE else "user", identity.name)
        seen = self.seen.get(member, MemberSeen())
        former = identity.issuer != self.next.key_id
        self.seen[member] = seen._replace(former_s=now_s) if former else seen._replace(next_s=now_s)

    def trust_digest(self) -> str:
        """The digest of the roots that members must know; "" if they never changed."""
        return hashlib.sha256(self.certificate_pem()).hexdigest() if self.turned else ""

    def fingerprints(self) -> tuple[str, str]:
        """The fingerprints of the root that all know, and of the next one; "": no change, or the
        same root.
        """
        own = fingerprint(self.present.certificate_pem())
        other = "" if self.next is None else fingerprint(self.next.certificate_pem())
        return own, "" if other == own else other

    # --- helpers, in order of use -------------------------------------------------------------

    @property
    def _signer(self) -> Authority:
        return self.next or self.present

    def _both(self) -> tuple[Authority, ...]:
        return (self.present,) if self.next is None else (self.present, self.next)

    def _beside(self, name: str, cluster: str) -> Authority | None:
        """The authority in one file with its key, if there is one."""
        path = self._dir / name
        return _read(path, path, cluster) if path.exists() else None

    def _keep_seeds(self) -> None:
        if not (self._dir / SEEDS).exists():
            seeds = {name: seed_of(self._dir, name).hex() for name in _DERIVED}
            seeds["system"] = system_of(self._dir, self.present)
            write_private(self._dir / SEEDS, json.dumps(seeds).encode())


def complete(state_dir: Path) -> None:
    """Put the parts of the new authority into their files; may be repeated after a crash."""
    done = state_dir / DONE
    text = read_private(done)
    begin = text.index(b"-----BEGIN CERTIFICATE")
    write_private(state_dir / KEY, text[:begin])
    write_public(state_dir / CERTIFICATE, text[begin:])
    done.unlink()


def seed_of(state_dir: Path, name: str) -> bytes:
    """A secret for the life of the cluster, derived from the key of its first CA.

    It reveals nothing about the key. "pools" is for rented machines, "checkpoints" for names of
    directories.
    """
    kept = state_dir / SEEDS
    if kept.exists():
        return bytes.fromhex(json.loads(read_private(kept))[name])
    return hashlib.sha256(_DERIVED[name] + read_private(state_dir / KEY)).digest()


def read_authority(state_dir: Path, cluster: str) -> Authority:
    """The cluster's present CA. ConfigError: it is missing, readable by others, or another
    cluster's.
    """
    return _read(state_dir / KEY, state_dir / CERTIFICATE, cluster)


def _read(key_path: Path, path: Path, cluster: str) -> Authority:
    try:
        authority = Authority.load(read_private(key_path), path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", hint="make the cluster first: dlq-master init"
        ) from None
    except ValueError as error:
        raise ConfigError(f"the CA in {path.parent}: {error}") from None
    if authority.cluster != cluster:
        raise ConfigError(
            f"cluster.name is {cluster!r}, the CA in {path.parent} is of {authority.cluster!r}"
        )
    return authority


def system_of(state_dir: Path, present: Authority) -> str:
    """The name of this cluster among all clusters: the fingerprint of its first root."""
    kept = state_dir / SEEDS
    if kept.exists():
        return str(json.loads(read_private(kept))["system"])
    return fingerprint(present.certificate_pem())
