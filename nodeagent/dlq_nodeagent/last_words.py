"""What a rank that failed said last: found on its node, told with its end, shown beside its name."""

from dlq_common.gpu_memory import says_gpu_oom
from dlq_nodeagent.runtimes.port import ExitRecord, ExitWhy, Handle, Runtime, RuntimeFault

_LINES = 5
_LINE = 200  # characters
_BYTES = 16_384


def failed_by_itself(record: ExitRecord) -> bool:
    """Whether it ended badly, and nobody here had ended it."""
    return record.why is ExitWhy.EXITED and bool(record.code or record.signal)


def last_lines(runtime: Runtime, handle: Handle, task: str = "") -> tuple[str, ...]:
    """The last lines of its output that are not empty, of that task alone if it has several.

    Before them comes what was said of too little GPU memory, where launchers have said more since.

    It is what `dlq logs` shows, so it goes to the same people, and it may be anything: control
    characters are the reader's business.
    """
    try:
        end = runtime.read_log(handle, 1 << 62, 0).end
        data = runtime.read_log(handle, max(0, end - _BYTES), _BYTES).data
    except (RuntimeFault, OSError):
        return ()
    prefix = f"[{task}] " if task else ""
    lines = data.decode("utf-8", "replace").splitlines()
    mine = (line.removeprefix(prefix) for line in lines if line.startswith(prefix))
    said = [line[:_LINE] for line in mine if line.strip()]
    telling = [line for line in said[:-_LINES] if says_gpu_oom(line)][-1:]
    return (*telling, *said[-_LINES:][len(telling) :])
