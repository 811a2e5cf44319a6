"""`dlq spec init`: a template with comments."""

from __future__ import annotations

from pathlib import Path

import click

from dlq_cli.commands.options import examples, json_option
from dlq_cli.output.written import write_new
from dlq_cli.spec.template import FORMS, template

_BY_SUFFIX = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


@click.command(
    epilog=examples(
        "dlq spec init job.toml",
        "dlq spec init train.sh",
        "dlq spec init --form yaml > job.yaml",
    )
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    help="The form to write.  [default: as FILE's name says, toml]",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@json_option
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
def init(file: Path | None, form: str | None, force: bool, as_json: bool) -> None:
    """Write a template of a spec (TOML or YAML) or of a script to FILE, or to stdout.

    It is valid as it stands; every key that there is has a comment.
    """
    form = form or (_BY_SUFFIX.get(file.suffix.lower(), "script") if file else "toml")
    text = template(form)
    if file is not None:
        write_new(file, text, force=force)
    if as_json:
        from dlq_cli.facts.common import document

        name = None if file is None else str(file)
        click.echo(document({"file": name, "form": form, "text": text}))
    elif file is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{file}: written; then: dlq submit {file}")
