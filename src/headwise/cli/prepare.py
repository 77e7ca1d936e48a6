"""`headwise prepare`: text files to subwords and stored token ids."""

from pathlib import Path

import click

from headwise.cli.output import show
from headwise.cli.text_options import (
    FILE,
    summary,
    text_options,
    training_text,
    validation_text,
)

EPILOG = """\b
Examples:
  headwise prepare --src train.en --tgt train.de --out data/ende
  headwise prepare --src a.en.gz --src b.en.zst --tgt a.de.gz --tgt b.de.zst \\
      --valid-src dev.en --valid-tgt dev.de --out data/ende
  headwise prepare big --tsv pairs.tsv --columns 2,3 --out data/ende \\
      --set data.vocab_size=8000 --set data.drop_duplicates=true

Files may be plain or end in .gz, .xz or .zst. Without validation text, some pairs
are held out, by source sentence. `headwise config` lists the settings under [data].
"""


@click.command(epilog=EPILOG)
@click.argument("recipe", default="base")
@text_options
@click.option("--out", type=FILE, required=True, help="The directory to make.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change one value.")
def prepare(
    recipe: str,
    sources: tuple[Path, ...],
    targets: tuple[Path, ...],
    valid_src: tuple[Path, ...],
    valid_tgt: tuple[Path, ...],
    tsv: Path | None,
    valid_tsv: Path | None,
    columns: tuple[int, int],
    out: Path,
    overrides: tuple[str, ...],
    lenient: bool,
    processes: int | None,
) -> None:
    """Learn subwords from parallel text, encode it and store it for training.

    RECIPE is a shipped recipe's name or a TOML file; without it, the paper's base model.
    """
    from headwise.cli.watch import watch
    from headwise.data import prepare as prepare_data
    from headwise.recipes import load_recipe

    config = load_recipe(recipe, overrides)
    text = training_text(sources, targets, tsv, columns)
    if text is None:
        raise click.UsageError("give the text with --src and --tgt, or with --tsv")
    valid = validation_text(valid_src, valid_tgt, valid_tsv, columns)
    with watch() as watcher:
        report = prepare_data(
            text,
            config,
            out,
            valid=valid,
            lenient=lenient,
            processes=processes,
            on_progress=watcher.progress,
        )
    show(summary(report, out))
