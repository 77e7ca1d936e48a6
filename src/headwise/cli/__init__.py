"""The `headwise` command: each verb parses, calls one library function and prints.

Modules in this folder import nothing heavy at their top, so that `--help` answers at once.
"""

import sys
from io import TextIOWrapper

import click

from headwise import __version__
from headwise.cli.config import config
from headwise.cli.explain import explain
from headwise.errors import HeadwiseError

_TRACEBACK = "--traceback"

EPILOG = """\b
Examples:
  headwise explain                     one attention head, step by step
  headwise config base                 the paper's base model as a recipe
  headwise config --set model.norm_order=pre --paper
                                       what departs from the paper, and where
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(_TRACEBACK, is_flag=True, help="Show where in the code an error came from.")
def app(traceback: bool) -> None:
    """The Transformer of "Attention Is All You Need", as a tool.

    Every verb has its own --help with examples.
    """


app.add_command(config)
app.add_command(explain)


def main() -> None:
    """Run the command line and exit with its code: 0, 2 for wrong input, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # A question mark beats a traceback.
    arguments = [a for a in sys.argv[1:] if a != _TRACEBACK]
    try:
        result = app.main(arguments, prog_name="headwise", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except HeadwiseError as error:
        if _TRACEBACK in sys.argv:
            raise
        click.echo(f"{click.style('headwise:', fg='red', bold=True)} {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has closed it. Python would complain again while it shuts down.
        sys.stderr.close()
        sys.exit(141)
    sys.exit(result if isinstance(result, int) else 0)
