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
from headwise.cli.classify import classify
from headwise.cli.config import config
from headwise.cli.demo import demo
from headwise.cli.doctor import doctor
from headwise.cli.evaluate import evaluate
from headwise.cli.explain import explain
from headwise.cli.export import export
from headwise.cli.fill import fill
from headwise.cli.generate import generate
from headwise.cli.output import error_line, error_lines
from headwise.cli.parse import parse
from headwise.cli.plot import plot
from headwise.cli.prepare import prepare
from headwise.cli.report import report
from headwise.cli.reproduce import reproduce
from headwise.cli.reproduce_trainings import baseline, table3
from headwise.cli.score import score
from headwise.cli.score_trees import score_trees
from headwise.cli.serve import serve
from headwise.cli.train import average, train
from headwise.cli.transcribe import transcribe
from headwise.cli.translate import translate
from headwise.errors import HeadwiseError
from headwise.machine import is_out_of_memory

EPILOG = """\b
Examples:
  headwise demo                     train a translator in minutes, and try it
  headwise explain                  one attention head, step by step
  headwise config base              the paper's base model as a recipe
  headwise config --set model.norm_order=pre --paper
                                    what departs from the paper, and where
  headwise prepare --src train.en --tgt train.de --out data/ende
                                    text to subwords and token ids
  headwise train multi30k-tiny --src train.en --tgt train.de --run runs/ende
                                    train a model; the same command resumes it
  headwise translate runs/ende "A man sleeps."
                                    translate sentences, or the lines of stdin
  headwise train lm-tiny --text book.txt --run runs/lm
                                    train a language model on your own text
  headwise generate runs/lm --prompt "The castle"
                                    continue a text
  headwise train parsing-small --trees train.mrg --run runs/parse
                                    train a constituency parser on your own trees
  headwise parse runs/parse "The dog sleeps."
                                    trees of sentences, or of the lines of stdin
  headwise train text-tiny --table reviews.csv --text-column text --label-column label \\
      --run runs/reviews            train a classifier on your own table
  headwise classify runs/reviews "Loved it."
                                    classes of texts, or of the lines of stdin
  headwise train bert-tiny --text text.txt --run runs/bert
                                    train a masked language model, to start others from
  headwise fill runs/bert "The [MASK] sat on the mat."
                                    what it puts where a word is masked
  headwise train read-tiny --table lines.csv --image-column path --text-column text \\
      --run runs/read               train a transcriber of images, or of sounds
  headwise transcribe runs/read line.png
                                    the texts of images, or of sounds
  headwise doctor multi30k-tiny     time and memory of a recipe on this machine
  headwise plot runs/base --out curves.html
                                    a run's loss, perplexity, rate and speed
  headwise attention runs/ende "A dog runs ." --out dog.html
                                    the attention weights, head by head
  headwise evaluate runs/ende --src test.en --ref test.de
                                    BLEU, chrF and perplexity of a run
  headwise report runs/ende         a run's scores, samples and curves on one page
  headwise reproduce table1         the paper's Table 1, measured here
  headwise score output.de test.de --language de
                                    BLEU and chrF of translations in a file
  headwise score-trees gold.txt parsed.txt
                                    bracket scores of parse trees, like EVALB
  headwise export runs/ende --to ctranslate2
                                    export the model to a faster engine
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
app.add_command(classify)
app.add_command(config)
app.add_command(demo)
app.add_command(doctor)
app.add_command(evaluate)
app.add_command(explain)
app.add_command(export)
app.add_command(fill)
app.add_command(generate)
app.add_command(parse)
app.add_command(plot)
app.add_command(prepare)
app.add_command(report)
app.add_command(reproduce)
reproduce.add_command(baseline)
reproduce.add_command(table3)
app.add_command(score)
app.add_command(score_trees)
app.add_command(serve)
app.add_command(train)
app.add_command(transcribe)
app.add_command(translate)


def main() -> None:
    """Run the command line and exit: with 0, 2 for wrong input, 130 or 143 after a signal."""
    arguments, show_traceback = sys.argv[1:], False
    if "--traceback" in arguments:
        arguments.remove("--traceback")
        show_traceback = True
    sys.excepthook = _print_traceback
    received = 0

    def end(number: int, _: FrameType | None) -> None:
        """Raise, so that temporary files are removed on the way out."""
        nonlocal received
        received = number
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # Ignored in a shell's background jobs.
            signal.signal(number, end)
    try:
        app.main(arguments, prog_name="headwise", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # Here, where an error such as a full disk is still reported.
        if received:
            # The exception was ignored, for example in a __del__ method.
            sys.exit(128 + received)
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
        error_line(f"not enough memory: use a smaller model, batch or beam ({_first_line(error)})")
        sys.exit(2)


def _print_traceback(_: type[BaseException], error: BaseException, __: object) -> None:
    """Print the traceback of a bug, with control characters escaped."""
    error_lines("".join(traceback.format_exception(error)))


def _message(error: Exception) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        sentence = " ".join(error.format_message().split()).rstrip(".")
        return f"{sentence}. See '{error.ctx.command_path} --help'."
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())  # Click puts each choice on its own line.
    if isinstance(error, OSError):
        place = "cannot write the output" if error.filename is None else os.fsdecode(error.filename)
        return f"{place}: {error.strerror or error}"
    return str(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
