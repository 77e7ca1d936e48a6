"""`headwise report`: a run's results on one page."""

from pathlib import Path
from typing import Any

import click

from headwise.cli.output import note
from headwise.cli.text_options import FILE, evaluation_options, given_flags
from headwise.visible import visible

EPILOG = """\b
Examples:
  headwise report runs/ende
                                     runs/ende/report.html, with validation samples
  headwise report runs/ende --src test.en --ref test.de
                                     scored on a test set
  headwise report runs/ende --checkpoint last --out ende.html

The page is self-contained: it can be sent, archived and opened offline.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.option("--src", "source", type=FILE, help="The source text of a test set to score.")
@click.option("--ref", "references", type=FILE, multiple=True, help="A reference; repeatable.")
@evaluation_options
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option(
    "--out", metavar="FILE", type=FILE, help="The page to write; default: RUN/report.html."
)
def report(
    run: Path,
    source: Path | None,
    references: tuple[Path, ...],
    checkpoint: str | None,
    out: Path | None,
    **files: Any,
) -> None:
    """Write a page that shows a run: score, samples, attention, curves, recipe.

    The options of a test set are those of `headwise evaluate` for the run's task.
    """
    if (source is None) != (not references):
        raise click.UsageError("a test set is --src and at least one --ref: give both, or neither")

    from headwise.cli.watch import watch
    from headwise.runs.directory import RunDirectory
    from headwise.workflows.predictors import load_predictor
    from headwise.workflows.report import report as report_run

    directory = RunDirectory(run)
    config = directory.config()
    task, others = config.task, given_flags(files, but=config.row)
    if task != "translation" and source is not None:
        others.append("--src")
    if others:
        raise click.UsageError(f"{others[0]} is of another task: {visible(str(run))} is {task}")
    predictor = load_predictor(directory, checkpoint=checkpoint)
    note(f"using {predictor.name}")
    values = {"source": source, "references": references, **files}
    with watch() as watcher:
        path = report_run(
            directory, predictor, values=values, out=out, on_progress=watcher.progress
        )
    note(f"wrote {path}")
