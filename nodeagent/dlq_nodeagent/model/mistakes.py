"""Whose fault it is that a rank cannot start: its user's, with an exit code, or this host's."""

import errno

from dlq_common.start_causes import StartCause


class LaunchRefused(ValueError):
    """The plan cannot be started; the text says why, and `cause` whose fault it is."""

    def __init__(self, text: str, cause: StartCause = StartCause.SPEC) -> None:
        super().__init__(text)
        self.cause = cause


NOT_FOUND = 127
CANNOT_RUN = 126

# Stages at which the shim fails over things that the user named: a directory, a program, its
# interpreter, a mount.
_USERS_STAGES = frozenset({"chdir", "exec", "interpreter", "mount"})

# Errors of a host that is full, out of something, or has lost a disk or a file server. A user who
# names a file meets these too, and another node may not have them.
_HOSTS_ERRORS = frozenset(
    {
        errno.EAGAIN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENODEV,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.ENOTCONN,
        errno.ENXIO,
        errno.EREMOTEIO,
        errno.ESHUTDOWN,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)


# Resources of a host that jobs use up.
_USED_UP = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)
# The system's errors for a plan that asks for missing things.
_ASKED_WRONGLY = frozenset({errno.E2BIG, errno.EINVAL, errno.ENAMETOOLONG, errno.ERANGE})

_STAGES = {
    "cgroup": StartCause.CGROUP,
    "contact": StartCause.STATE,
    "ctl": StartCause.STATE,
    "log": StartCause.STATE,
    "identity": StartCause.ACCOUNT,
    **dict.fromkeys(_USERS_STAGES, StartCause.USER_FILES),
}


class NoRoom(LaunchRefused):
    """This node's disk is too full for the rank."""

    def __init__(self, text: str) -> None:
        super().__init__(text, StartCause.NO_ROOM)


class UserFileFault(OSError):
    """The host failed with a file that a user named; another node may not."""


class UserMistake(ValueError):
    """The user's request cannot run on any node; the text is for the user."""

    def __init__(self, text: str, exit_code: int = CANNOT_RUN) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def exit_code_of(number: int) -> int | None:
    """A shell's exit code for this error with a user's file; None: the host's fault."""
    if number in _HOSTS_ERRORS:
        return None
    return NOT_FOUND if number == errno.ENOENT else CANNOT_RUN


def lacks_room(error: BaseException | None) -> bool:
    """Whether the root cause of an error is a full disk of this node."""
    while error is not None:
        if isinstance(error, NoRoom) or (
            isinstance(error, OSError) and error.errno == errno.ENOSPC
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def start_exit_code(stage: str, number: int) -> int | None:
    """The same for a step of the shim (shim/README.md, `start_error`)."""
    return exit_code_of(number) if stage in _USERS_STAGES else None


def cause_of_stage(stage: str, number: int) -> StartCause:
    """Why a rank could not be started, by the shim's failed step and the system's error."""
    if stage == "container" and number == 0:  # podman ran, and these are its words
        return StartCause.CONTAINER
    known = StartCause.CONTAINER_ENGINE if stage == "container" else _STAGES.get(stage)
    return _by_error(number, StartCause.SHIM if known is None else known)


def cause_of(error: BaseException) -> StartCause:
    """The same for errors of the preparation. Only a known fault of the node counts as one."""
    if isinstance(error, LaunchRefused):
        return error.cause
    if isinstance(error, OSError):
        if isinstance(error, PermissionError) and error.errno is None:
            return StartCause.ACCOUNT  # no uid of their own, as `rights_of` says
        return _by_error(error.errno or 0, StartCause.USER_FILES)
    return StartCause.AGENT_FAULT


def cause_of_own(error: BaseException) -> StartCause:
    """The same for work in the agent's own directories."""
    if isinstance(error, LaunchRefused):
        return error.cause
    root: BaseException | None = error
    while root is not None and not isinstance(root, OSError):
        root = root.__cause__ or root.__context__
    return _by_error((root.errno or 0) if isinstance(root, OSError) else 0, StartCause.STATE)


def _by_error(number: int, otherwise: StartCause) -> StartCause:
    if number == errno.ENOSPC:
        return StartCause.NO_ROOM
    if number in _USED_UP:
        return StartCause.EXHAUSTED
    return StartCause.SPEC if number in _ASKED_WRONGLY else otherwise
