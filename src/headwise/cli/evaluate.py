"""`headwise evaluate`: score runs on a test set."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.engine_options import engine_options
from headwise.cli.output import show, show_json
from headwise.cli.text_options import FILE, evaluation_options, given_flags, is_column
from headwise.config import STRONGEST_PENALTY, AnyConfig
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.tasks.evaluation import EvaluationResult
    from headwise.workflows.evaluate import Evaluation
    from headwise.workflows.translators import EngineName, Quantization

EPILOG = """\b
Examples:
  headwise evaluate runs/ende --src test.en --ref test.de
  headwise evaluate runs/ende runs/deeper --src test.en --ref test.de
                                     a table, and whether they differ beyond chance
  headwise evaluate runs/ende --src test.en --ref a.de --ref b.de --json
  headwise evaluate runs/ende --tsv test.tsv --columns 1,2,3 --set decode.stop=count
                                     a source and two references on each line
  headwise evaluate runs/lm --text test.txt
                                     a language model: perplexity and bits per byte
  headwise evaluate runs/parse --trees test.mrg
                                     a parser: bracket scores by EVALB's rules
  headwise evaluate runs/digits --images t10k-images-idx3-ubyte.gz --baseline
                                     a classifier: accuracy, F1, confusion, calibration
  headwise evaluate runs/read --table test.csv --image-column path --text-column text
                                     a transcriber: word and character error rates

Files may end in .gz, .xz or .zst. Publish BLEU with its signature; the tokenised
scores are as in the paper, and not comparable with it.
"""


def _columns(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    columns = value.split(",")
    if len(columns) < 2 or not all(map(is_column, columns)):
        raise click.BadParameter(f"{value!r} is not two column numbers or more, as in 1,2,3")
    return tuple(map(int, columns))


@click.command(epilog=EPILOG)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=FILE)
@click.option("--src", "source", type=FILE, help="The test set's source text.")
@click.option("--ref", "references", type=FILE, multiple=True, help="A reference; repeatable.")
@click.option("--tsv", type=FILE, help="One file with all columns, instead of --src and --ref.")
@click.option(
    "--columns",
    metavar="N,N[,N...]",
    default="1,2",
    callback=_columns,
    show_default=True,
    help="The TSV's source and references.",
)
@evaluation_options
@click.option(
    "--language", help="Of the references, for the Moses tokenizer; default: the recipe's."
)
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--beam", type=click.IntRange(min=1), help="Hypotheses kept open.")
@click.option(
    "--alpha",
    type=click.FloatRange(min=0, max=STRONGEST_PENALTY),
    help="Strength of the length penalty.",
)
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a [decode] setting."
)
@engine_options
@click.option("--output", type=FILE, help="Write the first run's translations to a file.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def evaluate(
    runs: tuple[Path, ...],
    source: Path | None,
    references: tuple[Path, ...],
    tsv: Path | None,
    columns: tuple[int, ...],
    language: str | None,
    checkpoint: str | None,
    beam: int | None,
    alpha: float | None,
    overrides: tuple[str, ...],
    engine: "EngineName",
    quantization: "Quantization | None",
    output: Path | None,
    as_json: bool,
    **files: Any,
) -> None:
    """Measure one run or several, all of one task, on a test set.

    Translation runs translate it, and the translations are scored.
    """
    config = _config_of(runs)
    task = config.task
    if task != "translation" and config.row.assembly == "seq2seq":
        search = {"beam": beam, "alpha": alpha}
        overrides += tuple(f"decode.{key}={v}" for key, v in search.items() if v is not None)
        beam = alpha = None
    given = {
        "--src": source,
        "--ref": references,
        "--tsv": tsv,
        "--language": language,
        "--beam": beam,
        "--alpha": alpha,
        "--quantization": quantization,
        "--output": output,
    }
    others = [flag for flag, value in given.items() if value not in (None, ())]
    if task == "translation":
        others = []
    others += given_flags(files, but=config.row)
    if others:
        raise click.UsageError(f"{others[0]} is of another task: {visible(str(runs[0]))} is {task}")
    if task != "translation":
        result = _evaluate_files(config, runs, files, checkpoint, overrides)
        if as_json:
            show_json(result.to_dict())
        else:
            show(result.text())
        return

    from headwise.cli.watch import watch
    from headwise.errors import RequestError
    from headwise.evaluation import read_corpus, read_tsv_corpus, refuse_nul
    from headwise.files import write_output
    from headwise.workflows.evaluate import evaluate as evaluate_runs

    if tsv is not None and (source or references):
        raise click.UsageError("give either --src and --ref, or --tsv, not both")
    if tsv is not None:
        sources, texts = read_tsv_corpus(tsv, columns)
        refuse_nul(sources, tsv)
    elif source is not None and references:
        sources, texts = read_corpus(source, references)
        refuse_nul(sources, source)
    else:
        raise click.UsageError("give the test set with --src and --ref, or with --tsv")
    with watch() as watcher:
        evaluation = evaluate_runs(
            runs,
            sources,
            texts,
            language=language,
            checkpoint=checkpoint,
            engine=engine,
            quantization=quantization,
            beam=beam,
            alpha=alpha,
            overrides=overrides,
            on_progress=watcher.progress,
        )
    if output is not None:
        lines = "".join(f"{line}\n" for line in evaluation.runs[0].translations)
        try:
            write_output(output, lines.encode())
        except OSError as error:
            raise RequestError(
                f"{output}: cannot write the translations: {error.strerror}"
            ) from error
    if as_json:
        show_json(evaluation.to_dict())
    else:
        show(_text(evaluation))


def _config_of(runs: tuple[Path, ...]) -> AnyConfig:
    """Return the config of the first run; all must be of one task and one kind of input."""
    from headwise.runs.directory import RunDirectory

    first, *others = [RunDirectory(run).config() for run in runs]
    for run, config in zip(runs[1:], others, strict=True):
        if (config.task, config.row.input) != (first.task, first.row.input):
            raise click.UsageError(
                f"{runs[0]} is {_named(first)} and {run} is {_named(config)}: evaluate them apart"
            )
    return first


def _named(config: AnyConfig) -> str:
    return f"{config.task} of {config.row.input}" if config.row.input != "text" else config.task


def _evaluate_files(
    config: AnyConfig,
    runs: tuple[Path, ...],
    values: dict[str, Any],
    checkpoint: str | None,
    overrides: tuple[str, ...],
) -> "EvaluationResult":
    from headwise.cli.watch import watch
    from headwise.tasks.evaluation import EvaluatesFiles
    from headwise.tasks.table import load_task

    found = load_task(config)
    if not isinstance(found, EvaluatesFiles):
        raise click.UsageError(f"runs of {config.task} cannot be evaluated on files")
    with watch() as watcher:
        return found.evaluate(
            runs,
            values,
            checkpoint=checkpoint,
            overrides=overrides,
            on_progress=watcher.progress,
        )


def _text(evaluation: "Evaluation") -> str:
    from headwise.evaluation import comparison_table, report, score_cells, text_table

    if len(evaluation.runs) == 1:
        (run,) = evaluation.runs
        perplexity = "" if run.perplexity is None else f"perplexity {run.perplexity:.2f} a token, "
        return (
            f"{visible(run.weights)}: {perplexity}{run.sentences_per_second:.0f} sentences/s\n"
            f"{report(run.scores)}"
        )
    rows = []
    for run in evaluation.runs:
        perplexity = "-" if run.perplexity is None else f"{run.perplexity:.2f}"
        cells = {"run": run.run, **score_cells(run.scores), "perplexity": perplexity}
        rows.append({**cells, "sentences/s": f"{run.sentences_per_second:.0f}"})
    table = text_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    assert evaluation.comparison is not None
    return f"{table}\n\n{comparison_table(evaluation.comparison)}"
