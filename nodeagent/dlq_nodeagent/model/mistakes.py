"""Whose fault it is that a rank cannot start: its user's, who hears an exit code, or this host's."""

import errno

from dlq_nodeagent.runtimes.launch import LaunchRefused

NOT_FOUND = 127
CANNOT_RUN = 126

# Where the shim fails over what the user named: a directory, a program, its interpreter, a mount.
_USERS_STAGES = frozenset({"chdir", "exec", "interpreter", "mount"})

# What a host says that is full, out of something, or has lost a disk or a file server. Whoever names
# a file meets these too, and another node may not have them.
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


class NoRoom(LaunchRefused):
    """This node's disk is too full for what the rank needs."""


class UserMistake(ValueError):
    """What the user asked for cannot be run anywhere; the text is for the user."""

    def __init__(self, text: str, exit_code: int = CANNOT_RUN) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def exit_code_of(number: int) -> int | None:
    """What a shell would exit with over a file of its user's; None where the host is at fault."""
    if number in _HOSTS_ERRORS:
        return None
    return NOT_FOUND if number == errno.ENOENT else CANNOT_RUN


def lacks_room(error: BaseException | None) -> bool:
    """Whether something failed because a disk of this node is full, at its root."""
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
