"""The `headwise` command: each verb parses, calls one library function and prints.

Modules in this folder import nothing heavy at their top, so that `--help` answers at once.
"""

import os
import signal
import sys
import traceback
from types import FrameType

import click

from headwise import __version__
from headwise.cli.attention import attention
from headwise.cli.config import config
from headwise.cli.demo import demo
from headwise.cli.doctor import doctor
from headwise.cli.evaluate import evaluate
from headwise.cli.explain import explain
from headwise.cli.export import export
from headwise.cli.generate import generate
from headwise.cli.output import error_line, error_lines
from headwise.cli.plot import plot
from headwise.cli.prepare import prepare
from headwise.cli.report import report
from headwise.cli.score import score
from headwise.cli.serve import serve
from headwise.cli.train import average, train
from headwise.cli.translate import translate
from headwise.errors import HeadwiseError
from headwise.machine import is_out_of_memory

EPILOG = """\b
Examples:
  headwise demo                     a translator trained in minutes, to see and to try
  headwise explain                  one attention head, step by step
  headwise config base              the paper's base model as a recipe
  headwise config --set model.norm_order=pre --paper
                                    what departs from the paper, and where
  headwise prepare --src train.en --tgt train.de --out data/ende
                                    text to subwords and token ids
  headwise train multi30k-tiny --src train.en --tgt train.de --run runs/ende
                                    text to a trained model; again, to go on with it
  headwise translate runs/ende < in.en > out.de
                                    a filter: N lines in, N lines out
  headwise train lm-tiny --text book.txt --run runs/lm
                                    a language model of your own text
  headwise generate runs/lm --prompt "The castle"
                                    what that model writes next
  headwise doctor multi30k-tiny     what a recipe would take on this machine
  headwise plot runs/base --out curves.html
                                    a run's loss, perplexity, rate and speed
  headwise attention runs/ende "A dog runs ." --out dog.html
                                    where the model looks, head by head
  headwise evaluate runs/ende --src test.en --ref test.de
                                    BLEU, chrF and perplexity of a run
  headwise report runs/ende         all about a run, on one page
  headwise score output.de test.de --language de
                                    BLEU and chrF of translations in a file
  headwise export runs/ende --to ctranslate2
                                    the model for a faster engine
  headwise serve runs/ende          a translation API and a web page

--traceback after any command shows where in the code an error came from.
"""


@click.group(
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """The Transformer of "Attention Is All You Need", as a tool.

    Every verb has its own --help with examples.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


app.add_command(attention)
app.add_command(average)
app.add_command(config)
app.add_command(demo)
app.add_command(doctor)
app.add_command(evaluate)
app.add_command(explain)
app.add_command(export)
app.add_command(generate)
app.add_command(plot)
app.add_command(prepare)
app.add_command(report)
app.add_command(score)
app.add_command(serve)
app.add_command(train)
app.add_command(translate)


def main() -> None:
    """Run the command line and exit: with 0, 2 for wrong input, 130 or 143 after a signal."""
    arguments, show_traceback = sys.argv[1:], False
    if "--traceback" in arguments:
        arguments.remove("--traceback")
        show_traceback = True
    sys.excepthook = _print_traceback
    told = 0

    def end(number: int, _: FrameType | None) -> None:
        """Have what is half-made cleared away on the way out."""
        nonlocal told
        told = number
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # As in a shell's background.
            signal.signal(number, end)
    try:
        app.main(arguments, prog_name="headwise", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # Here, where a full disk can still be reported.
        if told:
            # It came where exceptions are ignored, in an object's last moment, say.
            sys.exit(128 + told)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except (click.ClickException, HeadwiseError, OSError) as error:
        if show_traceback:
            error_lines(traceback.format_exc())
        error_line(_message(error))
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if show_traceback or not is_out_of_memory(error):
            raise
        error_line(f"not enough memory: take a smaller model, batch or beam ({_first_line(error)})")
        sys.exit(2)


def _print_traceback(_: type[BaseException], error: BaseException, __: object) -> None:
    """Print the traceback of a bug, which may quote a file as well."""
    error_lines("".join(traceback.format_exception(error)))


def _message(error: Exception) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        sentence = " ".join(error.format_message().split()).rstrip(".")
        return f"{sentence}. See '{error.ctx.command_path} --help'."
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())  # It lists choices on lines of their own.
    if isinstance(error, OSError):
        place = "cannot write the output" if error.filename is None else os.fsdecode(error.filename)
        return f"{place}: {error.strerror or error}"
    return str(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
