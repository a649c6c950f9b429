"""The command line: one file a command, no logic; heavy imports only inside the command that needs them."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from readout import __version__
from readout.errors import ReadoutError

COMMANDS = ("run", "circuit", "icr", "prompts", "extract", "fit", "validate", "train", "models")
BAD_INPUT = 2
NO_GROUND = 3


class Commands(click.Group):
    """Commands by file name, imported when they are called, so that --help is quick."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"readout.cli.{name}").command
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="readout")
def commands() -> None:
    """Measure, fit and test the key-value readout of in-context learning in causal language models.

    \b
    readout run --model smollm2-135m --out runs/words      the main job, end to end
    readout circuit --model tiny --out runs/circuit        what the circuit is made of, claim by claim
    readout prompts --task trec --classes 3                prompts as the model sees them
    readout extract / fit / validate                       the main job step by step
    """


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    try:
        # Outside standalone mode click returns the code that a command exits with.
        sys.exit(commands(standalone_mode=False))
    except click.exceptions.Abort:
        click.echo("stopped; run the same command again to go on", err=True)
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"readout: {error.format_message()}", err=True)
        sys.exit(BAD_INPUT)
    except OSError as error:
        place, reason = error.filename or "a file", error.strerror or error
        click.echo(f"readout: {place} cannot be read or written: {reason}", err=True)
        sys.exit(BAD_INPUT)
    except ReadoutError as error:
        click.echo(f"readout: {error}", err=True)
        sys.exit(BAD_INPUT)
