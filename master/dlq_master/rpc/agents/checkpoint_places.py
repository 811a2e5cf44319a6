"""The directories in which attempts of jobs leave their checkpoints."""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import PurePosixPath

from dlq.v1 import job_pb2
from dlq_master.model.ids import AttemptKey, JobId

_SECRET_DIGITS = 24  # 96 bits


@dataclass(frozen=True, slots=True)
class CheckpointPlaces:
    """The directories below the site's root: JOB-SECRET/ATTEMPT for each job.

    No other user can guess such a directory, and so make it first. The secret follows from the seed
    and the job.
    """

    root: str
    seed: bytes

    def directory(self, spec: job_pb2.JobSpec, key: AttemptKey, *, trial: bool = False) -> str:
        """An attempt's own directory, or that of its script with a marker; not those of a trial.

        In a directory that the user has named it is JOB/ATTEMPT, which people can find.
        """
        if spec.checkpoint.marker and not trial:
            return spec.checkpoint.directory
        named = spec.checkpoint.directory
        name = str(key.job_id) if named else f"{key.job_id}-{self._secret(key.job_id)}"
        return f"{(named or self.root).rstrip('/')}/{name}/{key.number}"

    def base(self, spec: job_pb2.JobSpec) -> str:
        """The directories above, which other jobs may share."""
        return str(PurePosixPath(spec.checkpoint.directory or self.root))

    def may_promote(self, path: str, key: AttemptKey) -> bool:
        """Whether a path that an agent reports may be this attempt's.

        Below the site's root it must be the attempt's directory, or JOB/ATTEMPT, which attempts
        from before an upgrade use. Anywhere else the user has named the place.
        """
        parts = PurePosixPath(path).parts
        if ".." in parts:
            return False
        above = PurePosixPath(self.root).parts
        if parts[: len(above)] != above:
            return True
        first, *rest = parts[len(above) :] or [""]
        job, dash, secret = first.partition("-")
        if not (job.isdecimal() and (not dash or len(secret) == _SECRET_DIGITS)):
            return True  # a directory that a user has named, below the root
        own = (str(key.job_id), f"{key.job_id}-{self._secret(key.job_id)}")
        return first in own and len(rest) > 1 and rest[0] == str(key.number)

    def _secret(self, job_id: JobId) -> str:
        made = hmac.new(self.seed, str(job_id).encode(), hashlib.sha256)
        return made.hexdigest()[:_SECRET_DIGITS]
