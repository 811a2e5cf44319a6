"""`sbatch`: a script's #SBATCH lines and sbatch's own options, as a job with compat = slurm."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

from dlq_cli.app import App
from dlq_cli.commands.jobs.submitted import Manner, submit_spec
from dlq_cli.jobs.source import STDIN, read_source
from dlq_cli.slurm.jobs.origin import origin_of
from dlq_cli.spec.check import doubts
from dlq_cli.spec.merge import merge, stacked
from dlq_cli.spec.message import to_message
from dlq_cli.spec.script import decode_script, read_script
from dlq_cli.spec.slurm.convert import sbatch_layer
from dlq_cli.spec.slurm.sbatch import Option, read_words
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Given, Layer, Notes
from dlq_cli.spec.values.presets import KEY
from dlq_common.errors import InvalidRequest

_OURS = frozenset({"--parsable", "--wait", "--test-only", "--wrap", "--quiet", "--verbose"})
_SUBMITIT = re.compile(r"^export SUBMITIT_EXECUTOR=slurm$", re.MULTILINE)
# Slurm passes all of the environment on, which every script that was written for it relies on.
_DEFAULTS: Layer = {
    "compat": Given("slurm", "sbatch"),
    "export": Given(("ALL",), "Slurm's default"),
}


def main(app: App, words: Sequence[str]) -> None:
    """Queue a script (a file, stdin or --wrap) and print `Submitted batch job N`."""
    options, rest = read_words(words, "sbatch")
    said = {option.name: option.value for option in options if option.name in _OURS}
    notes = Notes()
    spec = spec_of(options, rest, notes)
    if "--quiet" not in said:
        for note in (*notes, *doubts(spec)):
            app.say(note)
    wait = "--wait" in said
    manner = Manner(
        parsable="--parsable" in said,
        as_json=False,
        wait=wait,
        follow=False,
        verdict=False,
        # Slurm's says nothing; people like to know, programs may take any word for trouble.
        reasons=sys.stderr.isatty(),
        tasks=False,
    )
    message = to_message(spec)
    script = rest[0] if rest and rest[0] != STDIN else ""
    message.origin.CopyFrom(origin_of("sbatch", words, script))
    test_only = "--test-only" in said
    submit_spec(app, spec, manner, request_id="", test_only=test_only, message=message)


def spec_of(options: Sequence[Option], rest: Sequence[str], notes: Notes) -> Spec:
    """The job to queue. InvalidRequest names the unreadable word."""
    text, name, arguments = _script(options, rest)
    more = [option for option in options if option.name not in _OURS]
    layer = stacked(
        [
            _DEFAULTS,
            _named(name),
            read_script(text.encode(), name).layer,  # #DLQ lines, below those for sbatch
            sbatch_layer(text, name, notes, more=more),
        ]
    )
    layer |= _submitit(text, layer)
    return finish(merge([layer], os.environ), directory=os.getcwd(), arguments=tuple(arguments))


def _script(options: Sequence[Option], rest: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    wrapped = next((option.value for option in options if option.name == "--wrap"), None)
    if wrapped is not None:
        if rest:
            raise InvalidRequest("sbatch: --wrap takes the place of a script")
        return f"#!/bin/sh\n{wrapped}\n", "wrap", ()
    if not rest and sys.stdin.isatty():
        raise InvalidRequest("sbatch: there is no script", hint="sbatch SCRIPT, or --wrap COMMAND")
    path = rest[0] if rest else STDIN
    name = "sbatch" if path == STDIN else path
    return decode_script(read_source(path), name), name, rest[1:]


def _named(name: str) -> Layer:
    """Slurm names a job after its script, ending and all."""
    word = re.sub(r"[^A-Za-z0-9_.+=@:-]", "_", PurePosixPath(name).name).lstrip(".+=@:-")
    return {"name": Given(word[:128] or "sbatch", "the script's name")}


def _submitit(text: str, layer: Layer) -> Layer:
    """The preset of a script that submitit wrote: its folder is where the output goes."""
    if not _SUBMITIT.search(text) or KEY in layer:
        return {}
    found = re.search(r"^#SBATCH --output=(\S+)$", text, re.MULTILINE)
    folder = found[1].strip("'\"").rpartition("/")[0] if found else ""
    more: Layer = {KEY: Given("submitit", "the script was written by submitit")}
    if folder.startswith("/") and "checkpoint.dir" not in layer:
        more["checkpoint.dir"] = Given(folder, "submitit's folder")
    return more
