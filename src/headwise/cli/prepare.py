"""`headwise prepare`: text files to subwords and stored token ids."""

from pathlib import Path
from typing import Any

import click

from headwise.cli.output import show
from headwise.cli.text_options import (
    FILE,
    summary,
    text_options,
    training_files,
    validation_files,
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
    out: Path,
    overrides: tuple[str, ...],
    lenient: bool,
    processes: int | None,
    **files: Any,
) -> None:
    """Encode files and store them for training: learn subwords, cut into tokens, write ids.

    RECIPE is a shipped recipe's name or a TOML file; without it, the paper's base model.
    """
    from headwise.cli.watch import watch
    from headwise.recipes import load_recipe
    from headwise.tasks.table import load_task, task_inputs

    config = load_recipe(recipe, overrides)
    source, valid = training_files(config, files), validation_files(config, files)
    if source is None:
        raise click.UsageError(f"give the {task_inputs(config.row).needed}")
    with watch() as watcher:
        report = load_task(config).prepare(
            source,
            config,
            out,
            valid=valid,
            lenient=lenient,
            processes=processes,
            tokenizer_from=None,
            on_progress=watcher.progress,
        )
    show(summary(report, out))
