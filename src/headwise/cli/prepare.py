"""`headwise prepare`: text files to subwords and stored token ids."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwise.cli.output import show

if TYPE_CHECKING:
    from headwise.data import LineReport, ParallelFiles, PreparedReport, TsvFile

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

_FILE = click.Path(path_type=Path)


def _columns(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int]:
    first, _comma, second = value.partition(",")
    if not (first.isdigit() and second.isdigit()):
        raise click.BadParameter(f"{value!r} is not two column numbers, as in 1,2")
    return int(first), int(second)


@click.command(epilog=EPILOG)
@click.argument("recipe", default="base")
@click.option("--src", "sources", type=_FILE, multiple=True, help="Source text; may be repeated.")
@click.option("--tgt", "targets", type=_FILE, multiple=True, help="Its translation, line by line.")
@click.option("--valid-src", type=_FILE, multiple=True, help="Source text to validate on.")
@click.option("--valid-tgt", type=_FILE, multiple=True, help="Its translation.")
@click.option("--tsv", type=_FILE, help="One file with both sides, instead of --src and --tgt.")
@click.option("--valid-tsv", type=_FILE, help="The same to validate on.")
@click.option(
    "--columns",
    metavar="N,N",
    default="1,2",
    callback=_columns,
    show_default=True,
    help="The TSV's columns.",
)
@click.option("--out", type=_FILE, required=True, help="The directory to make.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change one value.")
@click.option(
    "--lenient", is_flag=True, help="Leave out lines that cannot be read, and count them."
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="Processes that encode; one for each core."
)
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
    from headwise.cli.progress import progress_bar
    from headwise.data import prepare as prepare_data
    from headwise.recipes import load_recipe

    config = load_recipe(recipe, overrides)
    text = _text(sources, targets, tsv, columns, "--src, --tgt")
    if text is None:
        raise click.UsageError("give the text with --src and --tgt, or with --tsv")
    valid = _text(valid_src, valid_tgt, valid_tsv, columns, "--valid-src, --valid-tgt")
    with progress_bar() as on_progress:
        report = prepare_data(
            text,
            config,
            out,
            valid=valid,
            lenient=lenient,
            processes=processes,
            on_progress=on_progress,
        )
    show(_summary(report, out))


def _text(
    sources: tuple[Path, ...],
    targets: tuple[Path, ...],
    tsv: Path | None,
    columns: tuple[int, int],
    names: str,
) -> "ParallelFiles | TsvFile | None":
    from headwise.data import ParallelFiles, TsvFile

    if tsv is not None and (sources or targets):
        raise click.UsageError(f"give either {names} or a TSV file, not both")
    if tsv is not None:
        return TsvFile(path=tsv, source_column=columns[0], target_column=columns[1])
    if not sources and not targets:
        return None
    return ParallelFiles(sources=sources, targets=targets)


def _summary(report: "PreparedReport", out: Path) -> str:
    vocab = f"{report.source_vocab:,}"
    if report.target_vocab != report.source_vocab:
        vocab += f" and {report.target_vocab:,}"
    lines = [
        f"{report.train_pairs:,} pairs to train on, {report.valid_pairs:,} to validate on, "
        f"vocabulary {vocab}: {out}"
    ]
    for name, part in (("training", report.train), ("validation", report.valid)):
        lines += [f"  {name} text: {sentence}" for sentence in _counts(part)]
    return "\n".join(lines)


def _counts(report: "LineReport") -> list[str]:
    left_out = [
        f"left out {n:,} of {report.pairs:,} pairs: {why}" for why, n in report.dropped.items()
    ]
    return left_out + [f"took off {n:,} times: {what}" for what, n in report.mended.items()]
