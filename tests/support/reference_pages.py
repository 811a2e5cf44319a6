"""Writes the generated pages of docs/reference from the code: `PYTHONPATH=tests python
tests/support/reference_pages.py`.

Commands come from the command line programs, settings from the configuration classes and their
comments, reasons and events from the code that names them, and the API from the proto files.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click

import dlq as dlq_front
from dlq_cli.main import dlq
from dlq_cli.spec.slurm.decisions import DECISIONS
from dlq_common.text.units import format_size, format_span
from dlq_master.app import main as master
from dlq_master.control.read_model.journal import TOLD_OTHERWISE, event_word
from dlq_master.model.attempts.attempt_steps import AttemptEvent
from dlq_master.model.jobs.job_steps import JobEvent
from dlq_master.model.nodes.node_steps import NodeEvent
from dlq_nodeagent.command import main as nodeagent
from dlq_notify.command import main as notify

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
GENERATED = "<!-- Generated from the code by tests/support/reference_pages.py; do not edit. -->"


@cache
def all_pages() -> dict[str, str]:
    """File name in FOLDER -> text."""
    made = {
        "commands.md": commands(),
        "configuration.md": configuration(),
        "reasons.md": reasons(),
        "events.md": events(),
        "api.md": api(),
        "slurm-options.md": slurm_options(),
        "python.md": python_api(),
    }
    return {name: f"{GENERATED}\n\n" + "\n".join(lines) + "\n" for name, lines in made.items()}


# --- Python -------------------------------------------------------------------------------------


def python_api() -> Iterator[str]:
    """Every name of `import dlq`, from its docstring and signature."""
    yield "# Python API"
    yield ""
    yield "Every name of `import dlq`. [Use dlq from Python](../using/python.md) is the guide."
    names: list[str] = vars(dlq_front)["__all__"]
    for name in sorted(names, key=_python_order):
        yield from _python_name(name, getattr(dlq_front, name))


def _python_order(name: str) -> tuple[int, str]:
    first = ("connect", "Cluster", "Job", "JobArray", "JobGroup", "SubmitWords")
    return (first.index(name) if name in first else len(first), name)


def _python_name(name: str, found: Any) -> Iterator[str]:
    if not inspect.isclass(found):
        yield f"\n## dlq.{name}\n\n```\n{_signature(name, found)}\n```\n"
        yield _paragraphs(inspect.getdoc(found) or "")
        return
    bases = [base.__name__ for base in found.__bases__ if issubclass(found, BaseException)]
    yield f"\n## dlq.{name}\n"
    yield _paragraphs(inspect.getdoc(found) or "")
    if bases:
        yield f"\nA kind of `{bases[0]}`."
    if typing.is_typeddict(found):
        yield "\n" + ", ".join(f"`{word}`" for word in sorted(found.__annotations__)) + "."
        return
    if dataclasses.is_dataclass(found):
        yield "\nFields: " + ", ".join(f"`{each.name}`" for each in dataclasses.fields(found)) + "."
    for member, value in vars(found).items():
        if member.startswith("_") or not (callable(value) or isinstance(value, property)):
            continue
        what = f"{member}" if isinstance(value, property) else _signature(member, value)
        yield f"\n### {name}.{member}\n\n```\n{what}\n```\n"
        yield _paragraphs(inspect.getdoc(value) or "")


def _signature(name: str, found: Any) -> str:
    """Without `self`, and without the folders of the types."""
    signature = inspect.signature(found)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    text = f"{name}{signature.replace(parameters=kept)}"
    text = re.sub("(: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


# --- options of Slurm ---------------------------------------------------------------------------


def slurm_options() -> Iterator[str]:
    """Every option of sbatch, with its decision."""
    yield "# Options of sbatch"
    yield ""
    yield "What becomes of each option of `sbatch`, on its command line, in `#SBATCH` lines and in"
    yield "`SBATCH_*` variables. An option that dlq cannot follow refuses the submission by name."
    yield '`--lenient`, `DLQ_SLURM_LENIENT=1`, or `slurm_lenient = "1"` in the client\'s settings'
    yield "submits without it."
    yield ""
    yield "| option | what becomes of it | why |"
    yield "|---|---|---|"
    for name, made in sorted(DECISIONS.items()):
        yield f"| `{name}` | {made.kind} | {made.why} |"


# --- commands -------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Every command of the programs, with its options."""
    yield "# Commands"
    yield ""
    yield "Every command of `dlq`, `dlq-master`, `dlq-nodeagent` and `dlq-notify`."
    yield "All of them take `--help`."
    for name, program in (
        ("dlq", dlq),
        ("dlq-master", master),
        ("dlq-nodeagent", nodeagent),
        ("dlq-notify", notify),
    ):
        yield f"\n## {name}"
        for command, context in _leaves(program, click.Context(program, info_name=name)):
            yield from _command(command, context)


def _leaves(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    if not isinstance(command, click.Group):
        yield command, context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _leaves(found, click.Context(found, info_name=name, parent=context))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"\n### {context.command_path}"
    yield f"\n```\nUsage: {context.command_path} {usage}\n```\n"
    yield _paragraphs(command.help or "")
    records = [
        record
        for param in command.params
        if isinstance(param, click.Option) and (record := param.get_help_record(context))
    ]
    if records:
        yield "\n| option | meaning |\n|---|---|"
        for option, words in records:
            yield f"| `{option.replace('|', chr(92) + '|')}` | {_cell(words)} |"


def _paragraphs(text: str) -> str:
    """Help as Markdown: what click keeps as it is (`\\b`) becomes a block of code."""
    blocks = []
    for block in cleandoc(text).split("\n\n"):
        if block.startswith("\b"):
            blocks.append("```\n" + block.lstrip("\b\n") + "\n```")
        else:
            blocks.append(_escaped(" ".join(block.split())))
    return "\n\n".join(blocks)


# --- configuration --------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A field of a configuration class."""

    name: str
    kind: str
    default: str
    meaning: str


class Section(NamedTuple):
    """A configuration class."""

    meaning: str
    settings: list[Setting]


def configuration() -> Iterator[str]:
    """Every setting of the daemons."""
    yield "# Configuration"
    yield ""
    yield "Every setting of `master.toml`, `nodeagent.toml` and `notify.toml`, with its type and"
    yield "default. The environment overrides a file: `DLQ_LEASE__HOLD=2h` sets `hold` in"
    yield "`[lease]`."
    pools = ROOT / "master/dlq_master/control/pool_config.py"
    control = ROOT / "master/dlq_master/control/config.py"
    agent = ROOT / "nodeagent/dlq_nodeagent"
    activity = ROOT / "master/dlq_master/control/activity_config.py"
    of_master = sections(pools) | sections(activity) | sections(control)
    yield from _daemon("master.toml", "MasterConfig", of_master)
    known: dict[str, Section] = {}
    for name in (
        "config.py",
        "devices/watch.py",
        "launch/rules.py",
        "line/uplink.py",
        "runtimes/podman/client.py",
    ):
        known |= sections(agent / name)
    yield from _daemon("nodeagent.toml", "AgentConfig", known)
    of_notify = sections(ROOT / "notify/dlq_notify/config.py")
    yield from _daemon("notify.toml", "NotifyConfig", of_notify)
    of_web = sections(ROOT / "web/dlq_web/config.py")
    yield from _daemon("web.toml", "WebConfig", of_web)


def sections(path: Path) -> dict[str, Section]:
    """The configuration classes of a module, with the comments of their fields."""
    text = path.read_text()
    lines = text.splitlines()
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            fields = [
                Setting(
                    one.target.id,
                    ast.unparse(one.annotation),
                    _default(one.value),
                    _comment(lines, one.lineno, one.end_lineno or one.lineno),
                )
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
            found[node.name] = Section(ast.get_docstring(node) or "", fields)
    return found


def _daemon(file: str, root: str, known: dict[str, Section]) -> Iterator[str]:
    yield f"\n## {file}"
    for table in known[root].settings:
        kind = re.sub(r"(?:tuple|Mapping)\[(?:str, )?(\w+)(?:, \.\.\.)?\]", r"\1", table.kind)
        section = known.get(kind)
        if section is None:
            continue
        title = f"[[{table.name}]]" if kind != table.kind else f"[{table.name}]"
        if table.kind.startswith("Mapping"):
            title = f"[{table.name}.NAME]"
        yield f"\n### {title}\n\n{_cell(section.meaning)}\n"
        yield "| setting | type | default | meaning |\n|---|---|---|---|"
        for one in section.settings:
            kind, default = one.kind.replace("|", "or"), one.default.replace("|", "\\|")
            yield f"| `{one.name}` | {_escaped(kind)} | {default} | {_cell(one.meaning)} |"


def _default(value: ast.expr | None) -> str:
    if value is None:
        return "none: it must be set"
    text = ast.unparse(value)
    if (seconds := re.fullmatch(r"Seconds\((.+)\)", text)) is not None:
        return f'`"{format_span(_number(seconds[1]))}"`'
    if (size := re.fullmatch(r"Bytes\((.+)\)", text)) is not None:
        return f'`"{format_size(int(_number(size[1])))}"`'
    empty = re.fullmatch(r"field\(default_factory=(\w+)\)", text)
    if empty is not None:
        return "empty"
    named = re.fullmatch(r"(?:Path|Address)\((.+)\)", text)
    return f"`{named[1] if named else text}`"


def _number(text: str) -> float:
    """The value of a constant such as `8 * 3600.0`."""
    return float(eval(compile(ast.parse(text, mode="eval"), "default", "eval"), {}))


def _comment(lines: list[str], first: int, last: int) -> str:
    """The comment above a field, or behind it."""
    above: list[str] = []
    at = first - 2
    while at >= 0 and lines[at].strip().startswith("#"):
        above.insert(0, lines[at].strip().lstrip("# "))
        at -= 1
    behind = [
        line.partition("  #")[2].strip() if "  #" in line else line.strip().lstrip("# ")
        for line in lines[first - 1 : last]
        if "  #" in line or line.strip().startswith("#")
    ]
    return " ".join([*above, *behind])


# --- reasons and events ---------------------------------------------------------------------------


def reasons() -> Iterator[str]:
    """Every reason code and every ground of a verdict, with its comment."""
    yield "# Reasons"
    yield ""
    yield "`dlq why` prints a reason as a sentence; `--json` and the journal have its code."
    yield "Several reasons may hold at a time. `[for 00:03:12]` behind a sentence is how long the"
    yield "reason has kept the job waiting, over all its waits. The line `waited` adds up the main"
    yield "reasons. The [glossary](glossary.md) explains the words."
    yield from _codes("model/why.py", "ReasonCode")
    yield "\n## Grounds of a verdict on a promise"
    yield ""
    yield "`dlq show` and the events `promise_made` and `promise_refused` have the ground."
    yield "\n| ground | meaning |\n|---|---|"
    yield from _codes("policy/promise/capacity/rules.py", "VerdictGround")


def _codes(path: str, name: str) -> Iterator[str]:
    """A table row for each value of an enum; a comment `# why ...` begins a section."""
    text = (ROOT / "master/dlq_master" / path).read_text()
    lines = text.splitlines()
    (codes,) = (
        one for one in ast.parse(text).body if isinstance(one, ast.ClassDef) and one.name == name
    )
    above = ""
    for line in lines[codes.lineno : codes.end_lineno]:
        comment, entry = line.strip(), re.match(r' +[A-Z_]+ = "([a-z_]+)"(?:  # (.+))?$', line)
        if comment.startswith("# why"):
            yield f"\n## {comment.lstrip('# ').capitalize()}\n\n| code | meaning |\n|---|---|"
        elif comment.startswith("# "):
            above = comment.removeprefix("# ")
        elif entry is not None:
            yield f"| `{entry[1]}` | {_cell(entry[2] or above)} |"


def events() -> Iterator[str]:
    """Every kind of event that the journal can have."""
    yield "# Events"
    yield ""
    yield "Every kind of event in the journal: `dlq events --kind KIND` selects by it. The facts of"
    yield "an event are in its `data`; [JSON](json.md) names the fields that all events have."
    for subject, union in (("job", JobEvent), ("attempt", AttemptEvent), ("node", NodeEvent)):
        yield f"\n## Steps of a {subject}\n\n| kind | what happened |\n|---|---|"
        for kind in get_args(union):
            if kind in TOLD_OTHERWISE:
                continue
            summary = (kind.__doc__ or "").split("\n\n")[0]
            yield f"| `{event_word(subject, kind)}` | {_cell(summary)} |"
    yield "\n## Other events\n\n| kind | noted by |\n|---|---|"
    for kind, rooms in sorted(_noted().items()):
        yield f"| `{kind}` | {', '.join(sorted(rooms))} |"


def _noted() -> dict[str, set[str]]:
    """Literal kinds of events, with the rooms of the master that write them."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "master/dlq_master/control").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in ("note", "_event", "_note"):
                for one in node.args:
                    for each in ast.walk(one):
                        if isinstance(each, ast.Constant) and _is_kind(each.value):
                            found.setdefault(str(each.value), set()).add(path.parent.name)
    return found


def _name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", value) is not None


# --- the API --------------------------------------------------------------------------------------


def api() -> Iterator[str]:
    """Every service and message of the proto files, with their comments."""
    yield "# API"
    yield ""
    yield "The gRPC services of the master, by file below `proto/dlq/v1`. All connections use"
    yield "mutual TLS. Comments of methods name the role that each needs."
    for path in sorted((ROOT / "proto/dlq/v1").glob("*.proto")):
        yield f"\n## {path.name}"
        yield from _proto(path.read_text().splitlines())


def _proto(lines: Iterable[str]) -> Iterator[str]:
    comment: list[str] = []
    outer: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("//"):
            comment.append(line.lstrip("/ "))
            continue
        words = _cell(" ".join(comment))
        begun = re.match(r"(service|message|enum) (\w+) \{(\})?", line)
        called = re.match(r"rpc (\w+)\(([\w. ]+)\) returns \(([\w. ]+)\)", line)
        named = re.match(r"((?:repeated |optional |map<.*> )?[\w.<>, ]*?)(\w+) = \d+", line)
        if begun:
            name = ".".join([*outer, begun[2]])
            yield f"\n### {begun[1]} {name}\n\n{words}\n"
            if not begun[3]:
                outer.append(begun[2])
        elif called:
            yield f"- `{called[1]}({called[2]}) -> {called[3]}`: {words}"
        elif named and outer:
            inline = _cell(line.partition("//")[2].strip())
            yield f"- `{(named[1] + named[2]).strip()}`: {words or inline}".rstrip(": ")
        elif line.startswith("}") and outer:
            outer.pop()
        comment = []


# --- text -----------------------------------------------------------------------------------------


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Markdown without HTML or links by accident."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        one if one.startswith("`") else re.sub(r"([<>\[\]*_])", r"\\\1", one) for one in parts
    )


def main() -> None:
    """Write every page; those that are fresh do not change."""
    for name, text in all_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
