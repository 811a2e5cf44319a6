"""`dlq mcp`: a tool server for programs that act for people."""

from __future__ import annotations

import os
import sys

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app


@click.command(
    epilog=examples(
        "dlq mcp",
        "dlq mcp --allow-actions",
    )
)
@click.option(
    "--allow-actions", is_flag=True, help="Also submit and cancel jobs, each after its plan."
)
@pass_app
def mcp(app: App, allow_actions: bool) -> None:
    """Serve the Model Context Protocol on stdin and stdout, with your rights, until stdin ends.

    It reads: status, show, why, the end of logs, nodes, queues, what-if and usage. With
    --allow-actions it also submits and cancels jobs. Each action needs a token that its plan gave,
    so that a person can look at the plan first.
    """
    from dlq_cli.mcp.protocol import ToolServer
    from dlq_cli.mcp.tools import INSTRUCTIONS, UNTRUSTED, Tools, runner

    tools = Tools(runner(app.home), acts=allow_actions)
    # Nothing else may write among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    ToolServer(tools.listed, tools.call, INSTRUCTIONS, UNTRUSTED).serve(sys.stdin.buffer, answers)
