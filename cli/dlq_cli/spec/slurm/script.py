"""A script for Slurm as the layer of a job with compat = slurm: its options, and Slurm's own
defaults.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.spec.flags import put_flag
from dlq_cli.spec.slurm.convert import convert
from dlq_cli.spec.slurm.sbatch import Option
from dlq_cli.spec.values.given import Given, Layer, Notes


def sbatch_layer(text: str, name: str, notes: Notes, *, more: Sequence[Option] = ()) -> Layer:
    """The request of the script's #SBATCH lines, with `more` options above them; ignored options
    are noted. InvalidRequest names a line that cannot be read.
    """
    made = convert(text, name, more=more, compat=True)
    layer: Layer = {"tasks_per_node": Given(1, "Slurm's default")}
    for taken in made.taken:
        put_flag(layer, taken.flag, taken.raw, _place(name, taken.line))
    for ignored in made.ignored:
        place = _place(name, ignored.line)
        notes.append(f"{place}: not taken over: {ignored.written}: {ignored.why}")
    notes.extend(f"{_place(name, remark.line or 0)}: {remark.text}" for remark in made.remarks)
    return layer


def _place(name: str, line: int) -> str:
    return f"{name}:{line}" if line else "sbatch"
