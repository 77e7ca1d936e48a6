"""`headwise report`: a run's results on one page."""

from pathlib import Path

import click

from headwise.cli.output import note
from headwise.cli.text_options import FILE

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
) -> None:
    """Write a page that shows a run: score, samples, attention, curves, recipe."""
    if (source is None) != (not references):
        raise click.UsageError("a test set is --src and at least one --ref: give both, or neither")

    from headwise.cli.watch import watch
    from headwise.evaluation import read_corpus, refuse_nul
    from headwise.runs.directory import RunDirectory
    from headwise.tasks.translation.translator import Translator
    from headwise.workflows.report import report as report_run

    test = None
    if source is not None:
        test = read_corpus(source, references)
        refuse_nul(test[0], source)
    translator = Translator.load(run, checkpoint=checkpoint)
    note(f"using {translator.name}")
    with watch() as watcher:
        path = report_run(
            RunDirectory(run), translator, test=test, out=out, on_progress=watcher.progress
        )
    note(f"wrote {path}")
