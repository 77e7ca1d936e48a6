"""The options that name parallel text, the same on every verb that takes it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.data import LineReport, PreparedReport, Text

FILE = click.Path(path_type=Path)


def is_column(text: str) -> bool:
    """Return whether it is the number of a column; what is longer than this is none."""
    return text.isdecimal() and len(text) < 10


def _columns(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int]:
    first, _comma, second = value.partition(",")
    if not (is_column(first) and is_column(second)):
        raise click.BadParameter(f"{value!r} is not two column numbers, as in 1,2")
    return int(first), int(second)


_OPTIONS = (
    click.option(
        "--src", "sources", type=FILE, multiple=True, help="Source text; may be repeated."
    ),
    click.option("--tgt", "targets", type=FILE, multiple=True, help="Its translation, by line."),
    click.option("--valid-src", type=FILE, multiple=True, help="Source text to validate on."),
    click.option("--valid-tgt", type=FILE, multiple=True, help="Its translation."),
    click.option("--tsv", type=FILE, help="One file with both sides, instead of --src and --tgt."),
    click.option("--valid-tsv", type=FILE, help="The same to validate on."),
    click.option(
        "--columns",
        metavar="N,N",
        default="1,2",
        callback=_columns,
        show_default=True,
        help="The TSV's columns.",
    ),
    click.option(
        "--lenient", is_flag=True, help="Leave out lines that cannot be read, and count them."
    ),
    click.option(
        "--processes", type=click.IntRange(min=1), help="Processes that encode; one for each core."
    ),
)


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that name its text."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def training_text(
    sources: tuple[Path, ...], targets: tuple[Path, ...], tsv: Path | None, columns: tuple[int, int]
) -> "Text | None":
    """Return the text that --src and --tgt, or --tsv, name; None if they name none."""
    return _text(sources, targets, tsv, columns, "--src, --tgt")


def validation_text(
    sources: tuple[Path, ...], targets: tuple[Path, ...], tsv: Path | None, columns: tuple[int, int]
) -> "Text | None":
    """Return the text that --valid-src and --valid-tgt, or --valid-tsv, name."""
    return _text(sources, targets, tsv, columns, "--valid-src, --valid-tgt")


def _text(
    sources: tuple[Path, ...],
    targets: tuple[Path, ...],
    tsv: Path | None,
    columns: tuple[int, int],
    names: str,
) -> "Text | None":
    from headwise.data import ParallelFiles, TsvFile

    if tsv is not None and (sources or targets):
        raise click.UsageError(f"give either {names} or a TSV file, not both")
    if tsv is not None:
        return TsvFile(path=tsv, source_column=columns[0], target_column=columns[1])
    if not sources and not targets:
        return None
    return ParallelFiles(sources=sources, targets=targets)


def summary(report: "PreparedReport", out: Path) -> str:
    """Say what became of a text."""
    vocab = f"{report.source_vocab:,}"
    if report.target_vocab != report.source_vocab:
        vocab += f" and {report.target_vocab:,}"
    lines = [
        f"{report.train_pairs:,} pairs to train on, {report.valid_pairs:,} to validate on, "
        f"vocabulary {vocab}: {visible(str(out))}"
    ]
    for name, part in (("training", report.train), ("validation", report.valid)):
        lines += [f"  {name} text: {sentence}" for sentence in counts(part)]
    return "\n".join(lines)


def counts(report: "LineReport") -> list[str]:
    """Say what was left out of a text and what was mended in it."""
    left_out = []
    for why, count in report.dropped.items():
        places = report.places.get(why, [])
        more = ", …" if len(places) < count else ""
        where = f" ({visible(', '.join(places))}{more})" if places else ""
        left_out.append(f"left out {count:,} of {report.pairs:,} pairs: {why}{where}")
    return left_out + [f"took off {n:,} times: {what}" for what, n in report.mended.items()]
