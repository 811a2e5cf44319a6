"""`dlq completion`: a script that teaches a shell our commands and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dlq_cli.commands.options import examples

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        'eval "$(dlq completion bash)"',
        "dlq completion zsh > ~/.zfunc/_dlq",
        "dlq completion fish > ~/.config/fish/completions/dlq.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
def completion(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish."""
    click.echo(completion_script(shell))


def completion_script(shell: str) -> str:
    """The script; pure text, no shell is asked for its version."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    made = kind(click.Command("dlq"), {}, "dlq", "_DLQ_COMPLETE")
    return made.source_template % made.source_vars()
