"""The command line: `outgrow COMMAND`. Commands are imported when they run, so that help is instant."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import textwrap
from collections.abc import Sequence

import click

from outgrow.version import VERSION

# name -> (module, one line). The lines are here so that `--help` imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "fit": ("outgrow.cli.fit", "Does it fit, what fills the memory, what would help."),
    "decide": ("outgrow.cli.decide", "One GPU, one node or a cluster, with reasons."),
    "catalog": ("outgrow.cli.catalog", "What is known of models, devices, nodes and fabrics."),
    "validate": ("outgrow.cli.validate", "How wrong is this tool on measured runs."),
    "explain": ("outgrow.cli.explain", "What a word means here, and how its number comes about."),
    "schema": ("outgrow.cli.schema", "JSON Schemas of the files and of the answers."),
}
_WELCOME = """\
Have you outgrown one GPU? From a real model and real hardware: does it fit,
what fills the memory, how sure are we, and is one GPU enough.

\b
  outgrow fit llama-3.1-8b --on h100-sxm   does it fit, what fills the memory
  outgrow fit --table --on h100-sxm        the memory table of guides
  outgrow decide examples/chat-8b.yaml     one GPU or a cluster, with reasons
"""

LONGEST_LINE = 240
"""Characters of a message beyond which it is wrapped."""


class LazyGroup(click.Group):
    """Commands by name; each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table above."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table: nothing is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Add a did-you-mean to an unknown command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=2)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx=ctx) from None


@click.command(
    cls=LazyGroup,
    help=_WELCOME,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    invoke_without_command=True,
)
@click.version_option(VERSION, prog_name="outgrow")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Entry of all commands."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(argv: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code. No user ever sees a traceback for what they typed."""
    from outgrow.errors import EXIT_BUG, EXIT_INPUT, EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTSIDE, OutgrowError

    try:
        if "_OUTGROW_COMPLETE" in os.environ:
            cli.main(prog_name="outgrow")
        # Not through `cli.main`: it turns a closed pipe into exit code 1, which means "no" here.
        with cli.make_context("outgrow", list(sys.argv[1:] if argv is None else argv)) as context:
            code = cli.invoke(context)
        sys.exit(code if isinstance(code, int) else EXIT_OK)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.Abort:
        _say("Interrupted.")
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show(file=sys.stderr)
        sys.exit(EXIT_INPUT)
    except OutgrowError as error:
        _say(str(error))
        if error.exit_code == EXIT_BUG:
            _say("This is our fault. Please report it with the command that you ran.")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("Interrupted.")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (| head): nothing is wrong, and the flush at exit is quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OK)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            _say(f"Could not write the answer: {error.strerror}.")
            sys.exit(EXIT_OUTSIDE)
        _bug(error)
        sys.exit(EXIT_BUG)


def _say(text: str) -> None:
    # What was typed, or stands in a file, is repeated in messages: nothing in it may steer the terminal.
    plain = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    # A list of a hundred names is wrapped; a sentence stays one line, so that it can be searched for.
    shown: list[str] = []
    for line in plain.split("\n"):
        long = len(line) > LONGEST_LINE
        shown += textwrap.wrap(line, 80, subsequent_indent="  ", break_on_hyphens=False) if long else [line]
    click.echo("\n".join(shown), err=True)


def _bug(error: Exception) -> None:
    import os
    import traceback

    if os.environ.get("OUTGROW_DEBUG"):
        traceback.print_exc()
    _say(f"Something went wrong inside of outgrow: {type(error).__name__}: {str(error)[:200]}")
    _say("This is our fault. Please report it with the command that you ran; OUTGROW_DEBUG=1 shows where.")
