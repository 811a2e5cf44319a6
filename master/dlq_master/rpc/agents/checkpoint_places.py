"""Where the attempts of jobs leave their checkpoints."""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import PurePosixPath

from dlq.v1 import job_pb2
from dlq_master.model.ids import AttemptKey, JobId

_SECRET_DIGITS = 24  # 96 bits


@dataclass(frozen=True, slots=True)
class CheckpointPlaces:
    """Below the site's root each job has a directory that nobody can guess beforehand, and so
    nobody can make in its stead: JOB-SECRET/ATTEMPT. The secret follows from the seed and the job,
    and stays the same as long as the seed does.
    """

    root: str
    seed: bytes

    def directory(self, spec: job_pb2.JobSpec, key: AttemptKey, *, trial: bool = False) -> str:
        """An attempt's own directory, or the script's with a marker, but not those of a trial. In a
        directory that the user has named it is JOB/ATTEMPT, which can be found by hand.
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
        """Whether a path that an agent reports may be this attempt's. Below the site's root only
        its own directory counts, or JOB/ATTEMPT, where attempts from before an upgrade save.
        Elsewhere the user has named the place.
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
