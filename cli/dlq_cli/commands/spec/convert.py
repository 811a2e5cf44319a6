"""`dlq spec convert`: a script for Slurm as a script or a spec for dlq."""

from __future__ import annotations

from pathlib import Path

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.jobs.source import STDIN, read_source
from dlq_cli.output.written import check_other, write_new
from dlq_cli.spec.script import decode_script
from dlq_cli.spec.slurm.conversion import Conversion
from dlq_cli.spec.slurm.convert import convert as convert_script
from dlq_cli.spec.slurm.converted import as_script, as_toml, flag_text


@click.command(
    epilog=examples(
        "dlq spec convert train.slurm > train.sh",
        "dlq spec convert train.slurm -o train.toml",
        "dlq spec convert --keep train.slurm -o both.sh",
        "dlq spec convert --json train.slurm | jq '.ignored'",
    )
)
@click.option(
    "--to",
    type=click.Choice(["script", "toml"]),
    help="The form to make.  [default: as the output's name says, script]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The output file.  [default: stdout]",
)
@click.option("--keep", is_flag=True, help="Leave the #SBATCH lines in, for both schedulers.")
@click.option("--force", is_flag=True, help="Overwrite an existing output.")
@json_option
@click.argument("script")
@pass_app
def convert(
    app: App,
    script: str,
    to: str | None,
    output: Path | None,
    keep: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Turn SCRIPT (- is stdin) with #SBATCH lines into one with #DLQ lines, or into a TOML spec.

    stderr lists each ignored option with its reason, and the commands of the script that will
    behave differently. SCRIPT itself is not changed.
    """
    name = "stdin" if script == STDIN else script
    if output is not None:
        check_other(output, Path(script))
    content = read_source(script)
    made = convert_script(decode_script(content, name), name)
    form = to or ("toml" if output and output.suffix.lower() == ".toml" else "script")
    text = as_toml(made) if form == "toml" else as_script(made, keep=keep)
    if output is not None:
        write_new(output, text, force=force)
    if as_json:
        _json(made, form, text)
        return
    if output is None:
        click.echo(text, nl=False)
    _report(app, made)


def _report(app: App, made: Conversion) -> None:
    for ignored in made.ignored:
        app.say(f"{made.source}:{ignored.line}: not taken over: {ignored.written}: {ignored.why}")
    for remark in made.remarks:
        place = made.source if remark.line is None else f"{made.source}:{remark.line}"
        app.say(f"{place}: look at: {remark.text}")
    app.say(f"{made.source}: {len(made.taken)} taken over, {len(made.ignored)} not")


def _json(made: Conversion, form: str, text: str) -> None:
    from dlq_cli.facts.common import document

    click.echo(
        document(
            {
                "source": made.source,
                "form": form,
                "text": text,
                "taken": [
                    {"line": taken.line, "written": taken.written, "flag": flag_text(taken)}
                    for taken in made.taken
                ],
                "ignored": [
                    {"line": each.line, "written": each.written, "why": each.why}
                    for each in made.ignored
                ],
                "remarks": [remark._asdict() for remark in made.remarks],
            }
        )
    )
