"""Turns the master's launch into the runtime's plan: paths, script, environment, limits."""

import os
import pwd
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlq_common.job_fields.reading.words import USUAL_UMASK
from dlq_common.job_fields.table.job import UMASK
from dlq_common.start_causes import StartCause
from dlq_common.text.names import check_argument, check_env
from dlq_common.text.soft_limits import NAMES
from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.devices.cores import NO_CORES, JobCores
from dlq_nodeagent.devices.nodes import own_gpus
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.checkpoints import CheckpointWatch, floor_of_attempt
from dlq_nodeagent.jobtree.paths import (
    PathRefused,
    check_real_place,
    checked_path,
)
from dlq_nodeagent.jobtree.places import (
    PlaceOnDisk,
    PlaceRefused,
    base_of_saved,
    check_saved,
    make_place,
)
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.launch.env import FROM_MASTER, GROUP_FROM_MASTER, UserAccount, job_environment
from dlq_nodeagent.launch.output_files import output_mount, with_output_files
from dlq_nodeagent.launch.ports import ports_for
from dlq_nodeagent.launch.rules import LaunchRules
from dlq_nodeagent.launch.stdin import stdin_environment, stdin_mount, with_stdin
from dlq_nodeagent.launch.steps import (
    StartPlace,
    stand_ins_mount,
    start_of,
    step_environment,
    with_batch,
)
from dlq_nodeagent.launch.tasks import port_count, tasks_mount, with_own_ports, with_tasks
from dlq_nodeagent.model.errands import Preparation
from dlq_nodeagent.model.launch import ContainerPlan, LaunchPlan, RankKey
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import (
    LaunchRefused,
    UserMistake,
    cause_of,
    cause_of_own,
    lacks_room,
)
from dlq_nodeagent.model.port import JobFiles
from dlq_nodeagent.profiling.injecting import Injecting
from dlq_nodeagent.ranks.orders import SIGNALS
from dlq_nodeagent.runtimes.podman.prepare import Containers, inside_container
from dlq_nodeagent.runtimes.podman.pull import Say
from dlq_nodeagent.runtimes.podman.pulls import Done, PullWish

_DEFAULT_INTERPRETER = ("/bin/sh",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """Prepares all that a rank needs; opens everything below a user's paths as that user."""

    rules: LaunchRules
    devices: Sequence[Device]
    job_files: Callable[[RankKey], JobFiles]
    now_s: Callable[[], float]
    cluster: str = "dlq"
    """The cluster's name, for jobs that ask."""
    containers: Containers | None = None
    """Makes containers ready; None where this node runs none."""
    injecting: Injecting | None = None
    """Puts the traffic profiler into ranks that are ordered with it; None: nowhere."""
    devices_for: Callable[[Sequence[Device]], tuple[OnlyMinors, ...]] = own_gpus
    """The GPU nodes that a rank with these devices may open."""
    cores: JobCores = NO_CORES
    """The cores for ranks without GPUs; the others are for those with GPUs."""

    def prepare(
        self,
        launch: Launch,
        *,
        ports: tuple[int, ...] = (),
        taken: frozenset[int] = frozenset(),
    ) -> Preparation:
        """Prepare directories, ports, script and plan; or return why it cannot run here, for the
        user.

        `ports`: those of its earlier start; `taken`: those of other ranks. Raises ImageWanted.
        """
        try:
            ports = ports_for(launch, port_count(launch), kept=ports, taken=taken)
            launch = with_own_ports(launch, ports)
            self._check_runtime(launch)
            rights = self.rights_of(launch)
            check_account(launch, self.rules.run_as)
            start, watch = self._directories(launch, rights)
            plan = self._plan(launch, rights, start)
        except (UserMistake, LaunchRefused, OSError) as refused:
            return refusal(refused)
        with rights.taken():
            floor_mtime_ns = floor_of_attempt(watch)
        return Preparation(plan=plan, floor_mtime_ns=floor_mtime_ns, ports=ports)

    def rights_of(self, launch: Launch) -> UserRights:
        """The rights for opening its files. PermissionError: another name for uid 0."""
        if self.rules.run_as == "self":
            return UserRights(os.getuid(), os.getgid(), tuple(os.getgroups()))
        if launch.uid == 0 or launch.gid == 0:
            raise PermissionError(
                f"the user {launch.user} has no user id of their own on this node"
            )
        return UserRights(launch.uid, launch.gid, launch.groups)

    def devices_of(self, launch: Launch) -> tuple[Device, ...]:
        """The devices that the launch names. LaunchRefused: this node lacks one."""
        have = {device.index: device for device in self.devices}
        missing = [index for index in launch.gpu_indexes if index not in have]
        if missing:
            raise LaunchRefused(f"this node has no GPU {missing[0]}", StartCause.DEVICES)
        return tuple(have[index] for index in launch.gpu_indexes)

    def own_only(self, launch: Launch) -> str:
        """Why a suspended rank may come back to its own GPUs only; empty: also to others.

        Programs that it starts later read the variables of its start, and so name the GPUs that it
        left. They are kept off these if each job has device nodes of its own. But a container has
        the nodes of its start, and Slurm's steps may start at any time.
        """
        if launch.container is not None:
            return "it is a container"
        if launch.compat:
            return "it may start steps of Slurm's"
        devices = self.devices_of(launch)
        apart = all(device.virtual for device in devices) or self.devices_for(devices)
        return "" if apart else "jobs of its node are not kept from the GPUs of others"

    def fetch(self, key: RankKey, wish: PullWish, say: Say, done: Done) -> None:
        assert self.containers is not None  # no other rank asks for an image
        self.containers.fetch(key, wish, say, done)

    def abandon(self, key: RankKey) -> None:
        if self.containers is not None:
            self.containers.abandon(key)

    def forget(self, key: RankKey) -> None:
        """Delete the script of a rank that is over, if it has one."""
        self._script_path(key).unlink(missing_ok=True)
        if self.containers is not None:
            self.containers.forget(key)

    def _check_runtime(self, launch: Launch) -> None:
        # An operator named the fake runtime for this agent: it accepts every launch.
        if self.rules.jobs.runtime == "fake":
            return
        if launch.container is not None and self.containers is None:
            raise LaunchRefused("this node runs no containers")
        runtime = self.rules.jobs.runtime
        plain = runtime == "podman" and launch.runtime == "process"
        if launch.runtime not in ("", runtime) and not plain:
            raise LaunchRefused(f"this node runs jobs by {runtime!r}, not {launch.runtime!r}")

    def _directories(
        self, launch: Launch, rights: UserRights
    ) -> tuple[StartPlace, CheckpointWatch]:
        roots = self.rules.jobs.roots
        cwd = checked_path(launch.working_directory or "/", "the working directory", ())
        inside = launch.container is not None  # the image's directory, not this node's
        if launch.working_directory and not inside:
            cwd = checked_path(cwd, "the working directory", roots)
        self._make_checkpoint_place(launch, rights)
        if inside:
            return StartPlace(cwd, cwd), watch_of(launch, 0, rights.uid)
        with rights.taken():
            if launch.working_directory:
                check_real_place(cwd, "the working directory", roots)
            start = start_of(launch, cwd, "the working directory", roots)
        return start, watch_of(launch, 0, rights.uid)

    def _make_checkpoint_place(self, launch: Launch, rights: UserRights) -> None:
        """Make the directory for checkpoints, and check the one to resume from."""
        what, roots = "the checkpoint directory", self.rules.jobs.roots
        try:
            with rights.taken():
                if launch.checkpoint_directory:
                    directory = checked_path(launch.checkpoint_directory, what, roots)
                    make_place(
                        place_of(launch), rights.uid, int(self.rules.jobs.checkpoint_mode, 8)
                    )
                    check_real_place(directory, what, roots)
                if launch.resume_from:
                    what = "the checkpoint to resume from"
                    # A user may name it too: then it is held to the same roots.
                    named = roots if launch.checkpoint_named else ()
                    path = checked_path(launch.resume_from, what, named)
                    check_saved(path, base_of(launch), rights.uid)
        except PlaceRefused as error:
            raise _not_theirs(launch, f"{what} cannot be used: {error}") from None

    def _plan(self, launch: Launch, rights: UserRights, start: StartPlace) -> LaunchPlan:
        rules, cwd = self.rules, start.directory
        argv = self._argv(launch, rights, start)
        container = self._container(launch, rights)
        environment = job_environment(
            launch,
            devices=self.devices_of(launch),
            files=self.job_files(launch.key),
            account=_account(launch, rights.uid),
            now_s=self.now_s(),
            cluster=self.cluster,
        )
        environment |= step_environment(launch, self.devices_of(launch), rules.stand_ins)
        environment |= stdin_environment(launch, rules.stand_ins)
        environment, container = self._profiled(launch, rights, environment, container, cwd)
        gpus = len(launch.gpu_indexes)
        return LaunchPlan(
            job_id=launch.key.job_id,
            attempt=launch.key.attempt,
            epoch=launch.fence.epoch,
            node_rank=launch.key.node_rank,
            argv=argv,
            env=environment,
            cwd=cwd,
            run_as=rules.run_as,
            uid=rights.uid,
            gid=rights.gid,
            groups=rights.groups if rules.run_as == "submitter" else (),
            allow_root=rules.jobs.allow_root,
            memory_bytes=self._memory_bytes(launch),
            pids_max=rules.jobs.pids_max,
            cpus=launch.cpu_limit,
            cores=self.cores.of(launch.core_indexes) if launch.core_indexes else self.cores.of_gpus,
            weight=gpus or None,
            hold_s=launch.hold_s,
            grace_s=min(launch.grace_s, launch.hold_s / 2),
            term_s=rules.jobs.term,
            signal=int(_signal(launch)),
            # Resized live, torchrun itself must leave: it would start its ranks again.
            to_ranks=launch.signal_to == "ranks" and not launch.live,
            log_head_bytes=rules.output.head,
            log_ring_bytes=rules.output.ring,
            log_bytes_per_s=rules.output.rate,
            umask=umask_of(launch),
            soft_limits=soft_limits_of(launch),
            container=container,
            only_devices=() if container else self.devices_for(self.devices_of(launch)),
        )

    def _memory_bytes(self, launch: Launch) -> int | None:
        """The requested memory. A job without GPUs and without a request gets that of its cores."""
        share = len(launch.core_indexes) * self.cores.memory_bytes
        return launch.memory_limit_bytes or share or None

    def _container(self, launch: Launch, rights: UserRights) -> ContainerPlan | None:
        if launch.container is None or self.containers is None:
            return None
        script = self._script_path(launch.key) if launch.script else None
        plan = self.containers.plan(launch, rights, self.devices_of(launch), script)
        at = self.rules.stand_ins
        parts = (stand_ins_mount, tasks_mount, stdin_mount, output_mount)
        more = tuple(mount for part in parts for mount in part(launch, at))
        return replace(plan, own_mounts=plan.own_mounts + more)

    def _profiled(
        self,
        launch: Launch,
        rights: UserRights,
        environment: dict[str, str],
        container: ContainerPlan | None,
        cwd: str,
    ) -> tuple[dict[str, str], ContainerPlan | None]:
        """Command and environment of the rank, with the traffic profiler if it is ordered."""
        image: dict[str, str] = {}
        if container is not None:
            environment = inside_container(launch, environment)
            image = dict(each.partition("=")[::2] for each in container.image_environment)
        if launch.profile is None or self.injecting is None:
            return environment, container
        words = _interpreter(launch.script) if launch.script else launch.command
        given = self.injecting.into(launch, rights, words, image | environment, cwd)
        if container is not None:
            more = container.own_mounts + given.mounts
            container = replace(container, own_mounts=more)
        return {**environment, **given.environment}, container

    def _script_path(self, key: RankKey) -> Path:
        return self.rules.scripts / str(key)

    def _argv(self, launch: Launch, rights: UserRights, start: StartPlace) -> tuple[str, ...]:
        _check_words(launch)
        words = self._words(launch, rights)
        words = with_batch(launch, words, self.devices_of(launch), self.rules.stand_ins, start)
        at, job_dir = self.rules.stand_ins, self.job_files(launch.key).job_dir
        words = with_tasks(launch, words, self.devices_of(launch), words_at=job_dir, state_dir=at)
        words = with_stdin(launch, words, job_dir=job_dir, state_dir=at)
        return with_output_files(launch, words, start.wanted, at)

    def _words(self, launch: Launch, rights: UserRights) -> tuple[str, ...]:
        if not launch.script:
            return launch.command
        path = self._script_path(launch.key)
        try:
            _write_script(path, launch.script, rights)
        except OSError as error:
            if lacks_room(error):
                raise
            raise LaunchRefused(f"{path}: {error.strerror}", cause_of_own(error)) from error
        # We name the interpreter instead of the kernel: a state directory may be mounted noexec,
        # and a file just written may still be busy.
        return (*_interpreter(launch.script), str(path), *launch.command)


def refusal(error: BaseException) -> Preparation:
    """The report on a rank that could not be prepared because of this error."""
    cause, full = cause_of(error), lacks_room(error)
    match error:
        case UserMistake():
            return Preparation(error=str(error), exit_code=error.exit_code)
        case LaunchRefused():
            return Preparation(error=str(error), no_room=full, cause=cause)
        case PermissionError() if error.errno is None:
            return Preparation(error=str(error), no_room=full, cause=cause)
        case OSError():
            words = f"{error.filename or 'this node'}: {error.strerror}"
            return Preparation(error=words, no_room=full, cause=cause)
        case _:
            return Preparation(error=f"{type(error).__name__}: {error}", cause=cause)


def umask_of(launch: Launch) -> int:
    """The submitted umask; the usual one for a client that says none."""
    said = UMASK.of(launch.fields)
    return USUAL_UMASK if said is None else said


def soft_limits_of(launch: Launch) -> Mapping[str, int]:
    """The submitted soft limits; invalid words are ignored."""
    return {name: value for name, value in launch.soft_limits.items() if name in NAMES}


def place_of(launch: Launch) -> PlaceOnDisk:
    """The place of this attempt's checkpoints. A directory that a script names is used as it is."""
    directory = os.path.normpath(launch.checkpoint_directory)
    named = bool(launch.checkpoint_marker) and directory == os.path.normpath(
        launch.checkpoint_base or directory
    )
    return PlaceOnDisk.of(directory, launch.checkpoint_base, whole=named)


def base_of(launch: Launch) -> str:
    """The directory above the checkpoint that it resumes from; it may be shared."""
    levels = 1 if launch.checkpoint_marker else 3  # JOB/ATTEMPT/STEP
    return base_of_saved(
        os.path.normpath(launch.resume_from), launch.checkpoint_base, levels=levels
    )


def _not_theirs(launch: Launch, text: str) -> Exception:
    """The refusal of a place that is not its user's alone: the user's fault if they named it, else
    the site's.
    """
    return (
        PathRefused(text)
        if launch.checkpoint_named
        else LaunchRefused(text, StartCause.CHECKPOINTS)
    )


def watch_of(launch: Launch, floor_mtime_ns: int, uid: int) -> CheckpointWatch:
    """The places of this launch's checkpoints, and their required owner."""
    return CheckpointWatch(
        directory=launch.checkpoint_directory,
        marker=launch.checkpoint_marker,
        settle_s=launch.settle_s,
        floor_mtime_ns=floor_mtime_ns,
        uid=uid,
    )


def interpreter_of(script: str) -> tuple[str, ...]:
    """The interpreter in a script's first line, as the kernel reads it, or /bin/sh."""
    first, _, _ = script.partition("\n")
    if not first.startswith("#!") or not first[2:].strip():
        return _DEFAULT_INTERPRETER
    program, *rest = first[2:].strip().split(None, 1)
    if os.path.basename(program) == "env" and rest and rest[0].startswith("-S"):
        return (program, *shlex.split(rest[0].removeprefix("-S")))
    return (program, *(part.strip() for part in rest))


def _interpreter(script: str) -> tuple[str, ...]:
    try:
        return interpreter_of(script)
    except ValueError as error:
        raise UserMistake(f"the first line of the script: {error}") from None


def _check_words(launch: Launch) -> None:
    if not launch.script and not launch.command:
        raise UserMistake("the command is empty")
    try:
        submitted = launch.environment.items()
        own = {
            name: value
            for name, value in submitted
            if name not in FROM_MASTER and not name.startswith(GROUP_FROM_MASTER)
        }
        check_env(own)
        for word in launch.command:
            check_argument(word, "the command")
    except ValueError as error:
        raise UserMistake(str(error)) from None


def _signal(launch: Launch) -> int:
    if launch.preempt_signal not in SIGNALS:
        raise UserMistake(f"no such signal for a notice: {launch.preempt_signal!r}")
    return SIGNALS[launch.preempt_signal]


def _write_script(path: Path, text: str, rights: UserRights) -> None:
    """Write a script that only its user can read; in our own directory, so with our rights."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        os.fchmod(file.fileno(), 0o500)
        if os.getuid() == 0:
            os.fchown(file.fileno(), rights.uid, rights.gid)


def check_account(launch: Launch, run_as: str) -> None:
    """LaunchRefused: the user's name and uid are not one account on this node.

    The uid may belong to another user now. A node that knows neither uses its users map alone
    (shim/users.c).
    """
    if run_as != "submitter" or not launch.user:
        return
    if launch.uid < 0:
        raise LaunchRefused(
            f"{launch.user} is not a user of the cluster any more", StartCause.ACCOUNT
        )
    with suppress(KeyError):
        name = pwd.getpwuid(launch.uid).pw_name
        if name != launch.user:
            raise LaunchRefused(
                f"uid {launch.uid} of the user {launch.user} is {name} on this node",
                StartCause.ACCOUNT,
            )
    with suppress(KeyError):
        uid = pwd.getpwnam(launch.user).pw_uid
        if uid != launch.uid:
            raise LaunchRefused(
                f"the user {launch.user} has uid {launch.uid} in the cluster and {uid} on this "
                "node",
                StartCause.ACCOUNT,
            )


def _account(launch: Launch, uid: int) -> UserAccount:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return UserAccount(launch.user or str(uid), "/")
    return UserAccount(entry.pw_name, entry.pw_dir)
