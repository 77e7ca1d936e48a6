"""`headwise score`: score translations in a file."""

from pathlib import Path

import click

from headwise.cli.output import show, show_json
from headwise.cli.text_options import FILE

EPILOG = """\b
Examples:
  headwise score output.de test.de --language de
  headwise score output.de reference1.de reference2.de
  headwise score output.de.gz test.de.zst --json
  headwise score /dev/stdin test.de --tsv < output.de

Both sides are plain text, not tokenised, a sentence a line; .gz, .xz and .zst are
decompressed. With several references, an empty line means no reference.
Intervals are sacreBLEU's bootstrap: 1,000 resamples, seed 12345.
"""


@click.command(epilog=EPILOG)
@click.argument("hypotheses", metavar="HYP", type=FILE)
@click.argument("references", metavar="REF...", nargs=-1, required=True, type=FILE)
@click.option(
    "--language",
    default="en",
    show_default=True,
    help="The text's language, for the Moses tokenizer only.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--tsv", "as_tsv", is_flag=True, help="Print a line for each score, with tabs.")
def score(
    hypotheses: Path, references: tuple[Path, ...], language: str, as_json: bool, as_tsv: bool
) -> None:
    """Score translations against references: BLEU, chrF and BLEU as in the paper.

    HYP has the translations, a sentence a line, and each REF one reference for each line.
    """
    if as_json and as_tsv:
        raise click.UsageError("give either --json or --tsv, not both")

    from headwise.evaluation import read_corpus, report, tsv
    from headwise.evaluation import score as score_text

    scores = score_text(*read_corpus(hypotheses, references), language=language)
    if as_json:
        show_json(scores.to_dict())
    else:
        show(tsv(scores) if as_tsv else report(scores))
