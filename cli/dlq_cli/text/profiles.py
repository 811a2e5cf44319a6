"""A traffic profile for people: its findings, their certainty, and a small chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq_cli.output.render import Cell, OutputLook, facts, table

Facts = Mapping[str, Any]

NOTHING_RECORDED = "nothing-recorded"
WHY = {
    NOTHING_RECORDED: "no process recorded anything: is it static, setuid or written in Go?",
    "no-traffic": "nothing was sent over a network",
    "too-few-iterations": "it needs a warm-up iteration and three more",
    "not-periodic": "no part of the traffic repeats itself three times",
    "self-check": "two ways to the model's size disagree; more iterations may help",
    "records-lost": "more records were lost than kept",
    "bypass": "bytes went past the profiler (io_uring, direct verbs)",
    "cuda-graph": "the collectives were replayed from a CUDA graph",
    "ranks-unknown": "how many ranks there are is not known; --ranks tells",
    "messages-are-not-tensors": "the sent bytes are neither tensors nor buckets of them",
    "static": "it is linked statically: nothing can be preloaded into it",
    "setuid": "it is setuid, setgid or has capabilities: the loader ignores preloads",
    "go": "it is written in Go, which makes its system calls itself",
    "io-uring": "it sends through io_uring, past the functions that are watched",
    "other-machine": "it is built for another processor, or has 32 bits",
    "not-a-program": "it is neither an ELF program nor a script",
    "not-found": "the program was not found",
    "unreadable": "its file may not be read, so nothing is known of it",
    "plugin-taken": "NCCL_PROFILER_PLUGIN names another plugin, and nothing else was seen",
    "plugin-off": "NCCL_PROFILER_PLUGIN is none, and nothing else was seen",
    "no-library": "the profiler's library was not built on its node",
    "library-unreachable": "its user's programs cannot load the profiler's library on its node",
    "switched-off": "its node's agent is set to profile nothing (jobs.profile)",
    "no-directory": "its node had no room for recordings",
    "no-numpy": "its node's agent has no numpy to analyse recordings with",
    "too-many-processes": "more of its processes sent something than there was room for",
    "not-told": "some of its nodes have not sent their records",
    "analysis-failed": "its records could not be analysed",
}
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_SIZES = 12
_LINKS = (
    Cell("LINK"),
    Cell("RHO", right=True),
    Cell("SLOWDOWN", right=True),
    Cell("BETWEEN", right=True),
)


def profile_text(found: Facts, look: OutputLook) -> str:
    """The whole profile, ended by a newline."""
    parts = [facts(_lines(found))]
    if found["phases"]:
        parts.append(
            f"{chart(found['phases'])}  what it sends in {len(found['phases'])} parts of an "
            "iteration\n"
        )
    if found["links"]:
        parts.append(table(_LINKS, _links(found), look))
    return "\n".join(parts)


def chart(amounts: Sequence[float]) -> str:
    """One block for each amount, the tallest for the largest; a blank for nothing."""
    most = max(amounts)
    return "".join(
        " " if not amount else _BLOCKS[min(7, int(amount / most * 8))] for amount in amounts
    )


def amount(size: float) -> str:
    """Bytes in decimal units, as links and models are counted: three digits that matter."""
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= step:
            return f"{size / step:.3g} {unit}"
    return f"{size:.0f} B"


def _lines(found: Facts) -> Iterator[tuple[str, str]]:
    ringed = found["world_size"] and found["pattern"] != "parameter-server"
    ranks = f", {found['world_size']} ranks" if ringed else ""
    yield "pattern", f"{found['pattern']}{ranks}, processes with traffic: {found['processes']}"
    yield "traffic", _verdict(found["traffic"])
    if found["period_s"]:
        yield (
            "iteration",
            f"{_time(found['period_s'])}, spread {found['jitter']:.0%}, seen "
            f"{found['iterations']} times",
        )
        yield "bytes", f"{amount(found['bytes_per_iteration'])} an iteration by the busiest process"
        yield "sends in", f"{found['active_fraction']:.0%} of an iteration"
    yield "sizes", _verdict(found["sizes"])
    if found["model_bytes"]:
        yield "model", amount(found["model_bytes"])
        yield "largest", _between(found["largest_tensor_bytes"], amount)
        share = _between(found["skew"], lambda part: f"{part:.1%}")
        yield (
            "skew",
            f"{share} of the model: {found['skew_word']} (PACKLIMIT {found['packlimit']:.1%})",
        )
    if found["server_skew"]:
        shares = ", ".join(amount(server["sent_bytes"]) for server in found["servers"])
        yield (
            "servers",
            f"{len(found['servers'])} get {shares}: the busiest {found['server_skew']:.2f} times "
            "the mean",
        )
    yield "buckets", _sizes(found["buckets"])
    yield "tensors", _sizes(found["tensors"])
    lost = f", {found['lost']:,} lost" if found["lost"] else ""
    yield "records", f"{found['records']:,}{lost}"
    yield "unseen", ", ".join(word.replace("_", " ") for word in found["unseen"])


def _verdict(verdict: Facts) -> str:
    if verdict["reason"] is None:
        return f"{verdict['confidence']}, by {verdict['method']}"
    return f"unknown: {WHY.get(verdict['reason'], verdict['reason'])}"


def _between(interval: Mapping[str, float], words: Any) -> str:
    lower, upper = words(interval["lower"]), words(interval["upper"])
    return str(upper) if lower == upper else f"{lower} to {upper}"


def _sizes(sizes: Sequence[int]) -> str:
    shown = ", ".join(amount(size) for size in sizes[:_MOST_SIZES])
    more = len(sizes) - _MOST_SIZES
    return f"{len(sizes)}: {shown}{f', and {more} more' if more > 0 else ''}" if sizes else ""


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _links(found: Facts) -> Iterator[tuple[str, ...]]:
    for name, link in found["links"].items():
        between = f"{link['slowdown_low']:.2f} to {link['slowdown_high']:.2f}"
        yield name, f"{link['rho']:.2g}", f"{link['slowdown']:.2f}", between
